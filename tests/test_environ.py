"""Environment variables: an unknown name or value is told, and the default stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goodput_plugins import environ


def test_a_process_without_our_variables_has_no_fault() -> None:
    assert environ.faults({"PATH": "/bin", "RANK": "x"}) == []


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    (fault,) = environ.faults({"GOODPUT_PLUGIN": "auto"})
    assert "GOODPUT_PLUGIN is not known" in fault
    assert all(name in fault for name in environ.KNOWN if name.startswith("GOODPUT_"))


@pytest.mark.parametrize(
    ("name", "bad", "good", "default"),
    [
        ("GOODPUT_PROCESSES", "both", "all", "primary"),
        ("GOODPUT_EVAL", "on", "off", "named"),
        ("GOODPUT_MAX_BYTES", "2GB", "1e9", "2000000000"),
        ("GOODPUT_ROLLING_WINDOWS", "60,x", "60, 3600", ""),
        ("GOODPUT_EXPORTERS", "promtheus", "prometheus,tensorboard", ""),
        ("GOODPUT_EXPORTERS", "off,tensorboard", "off", ""),
        ("GOODPUT_EXPORTERS", ",", "tensorboard,", ""),
        ("GOODPUT_ROLLING_WINDOWS", ",", "60", ""),
        ("GOODPUT_PLUGINS", ", ,", "jax", ""),
        ("GOODPUT_TPU_ENDPOINT", "localhost", "localhost:80", ""),
        ("GOODPUT_PROMETHEUS_ADDRESS", "0.0.0.0:99999", "[::1]:9464", "0.0.0.0:9464"),
    ],
)
def test_an_unknown_value_is_told_and_reads_as_the_default(name: str, bad: str, good: str, default: str) -> None:
    variable = environ.KNOWN[name]
    (fault,) = environ.faults({name: bad})
    assert f"{name}={bad}" in fault and variable.known in fault
    assert variable.read({name: bad}) == default
    assert environ.faults({name: good}) == [] and variable.read({name: good}) == good


def test_an_empty_value_is_an_unset_one() -> None:
    assert environ.faults({"GOODPUT_PROCESSES": "", "GOODPUT_DIR": " "}) == []
    assert environ.DIR.read({"GOODPUT_DIR": " "}) == "goodput"


def test_every_variable_that_our_source_names_is_in_the_table() -> None:
    package = Path(environ.__file__).parent
    quoted = re.compile(r"[\"'`$ ](GOODPUT_[A-Z_]*[A-Z])[^A-Z_ ]")
    named = {name for path in package.rglob("*.py") for name in quoted.findall(path.read_text())}
    assert named <= set(environ.KNOWN)


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "0"}, (0, None)),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4)),
        ({"LOCAL_RANK": "0"}, (0, None)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"}, (1, 2)),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, (9, None)),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, (1, None)),
        ({"LOCAL_RANK": "1", "RANK": "5"}, (5, None)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "none"}, (1, 2)),
    ],
)
def test_the_launcher_tells_the_rank(variables: dict[str, str], rank: tuple[int, int | None] | None) -> None:
    assert environ.rank(variables) == rank
