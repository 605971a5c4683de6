"""The doctor: the switch and the frameworks, each with its fault planted; it never hangs, and never fails."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from examining import ARMED, PACKAGE, diagnoses, is_wrong, write

from goodput_plugins.auto.plugins import Plugin
from goodput_plugins.cli import main
from goodput_plugins.doctor import case as case_module
from goodput_plugins.doctor import examined, frameworks
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, Level, ok

pytestmark = pytest.mark.usefixtures("one_interpreter_for_all", "no_network")


# --- the switch ---------------------------------------------------------------------------------------


def test_switch(tmp_path: Path) -> None:
    is_wrong(diagnoses()["switch"], "not set", "export GOODPUT_PLUGINS=auto")
    is_wrong(diagnoses(GOODPUT_PLUGINS="off")["switch"], "off")
    is_wrong(diagnoses(write(tmp_path))["switch"], "recorded all the same", level=Level.WARNING)
    assert diagnoses(GOODPUT_PLUGINS="auto")["switch"].level is Level.OK


def test_start_up_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnoses()["start-up"].level is Level.OK
    without_site = tmp_path / "python"
    without_site.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_site.chmod(0o755)
    monkeypatch.setattr(case_module.sys, "executable", str(without_site))
    is_wrong(diagnoses()["start-up"], "goodput_plugins.pth", "Install")


def test_variables() -> None:
    is_wrong(diagnoses(GOODPUT_PLUGIN="auto")["variables"], "GOODPUT_PLUGIN is not known", "mean GOODPUT_PLUGINS?")
    is_wrong(diagnoses(GOODPUT_PROCESSES="both")["variables"], "primary or all")
    is_wrong(diagnoses(GOODPUT_PLUGINS="jaxx")["variables"], "jaxx", "is no plugin")
    mixed = diagnoses(GOODPUT_PLUGINS="off,jax")
    is_wrong(mixed["variables"], "off is ignored", "Say auto, off, or names", level=Level.WARNING)
    assert mixed["switch"].level is Level.OK
    for value in ("off,tensorboard", ","):
        found = diagnoses(GOODPUT_EXPORTERS=value)
        told = f"GOODPUT_EXPORTERS={value} is not known"
        is_wrong(found["variables"], told, "off, or a list of", "as if it were not set")
        assert "nowhere" in found["exporters"].meaning
    assert diagnoses()["variables"].level is Level.OK


# --- frameworks ---------------------------------------------------------------------------------------


def plugin(name: str, distribution: str, since: str) -> Plugin:
    return Plugin(name, distribution=distribution, library=name, since=since, hooks={}, sees=())


def test_plugins_that_are_missing_or_do_not_know_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (plugin("absent", "no-such-library", "1"), plugin("rich", "rich", "999"), plugin("pytest", "pytest", "1"))
    monkeypatch.setattr(frameworks, "TABLE", table)
    named = diagnoses(GOODPUT_PLUGINS="absent,rich")
    is_wrong(named["plugin-absent"], "not installed", "pip install 'no-such-library>=1'")
    is_wrong(named["plugin-rich"], "stays off", "pip install 'rich>=999'")
    assert "not asked for" in named["plugin-pytest"].text
    found = diagnoses(GOODPUT_PLUGINS="auto")
    assert found["plugin-absent"].level is Level.OK
    assert found["plugin-rich"].level is Level.WARNING
    assert "is armed" in found["plugin-pytest"].text


def test_frameworks_that_resolve_to_our_folders() -> None:
    is_wrong(diagnoses(PYTHONPATH=str(PACKAGE))["frameworks"], "our folder instead of the library", "PYTHONPATH")
    assert diagnoses()["frameworks"].level is Level.OK


# --- the doctor itself --------------------------------------------------------------------------------


def test_a_check_that_hangs_or_fails_is_a_diagnosis() -> None:
    def hangs(case: Case) -> Iterator[Diagnosis]:
        time.sleep(5)
        yield ok("hangs", "")

    def fails(case: Case) -> Iterator[Diagnosis]:
        yield ok("fails", "half of it")
        raise RuntimeError("planted")

    case = Case(None, {}, now=0)
    began = time.monotonic()
    (late,) = examined(hangs, case, 0.2)
    assert late.level is Level.UNKNOWN and "no answer" in late.text
    assert time.monotonic() - began < 4
    assert "planted" in examined(fails, case)[-1].text


def test_each_line_has_its_row_in_the_docs_and_its_test() -> None:
    """Ids as the source spells them; those of plugins are made from their names."""
    sources = "".join(path.read_text() for path in (PACKAGE / "doctor").glob("*.py"))
    ids = set(re.findall(r'\b(?:ok|warning|wrong|unknown|Diagnosis)\(\s*"([\w-]+)"', sources))
    page = PACKAGE.parent / "docs" / "troubleshooting.md"
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_doctor*.py"))
    if not page.exists():
        pytest.skip("this is no clone")
    assert len(ids) > 20
    assert [id for id in ids if f"| `{id}` |" not in page.read_text()] == []
    assert [id for id in ids if f'"{id}"' not in tests] == []


def test_exit_code_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("GOODPUT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    write(tmp_path, ARMED)
    assert main(["doctor", "digits", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "goodput-doctor/1" and told["counts"]["wrong"] == 0
    assert {"group", "id", "level", "text", "meaning", "cure"} == set(told["checks"][0])
    monkeypatch.setenv("GOODPUT_EVAL", "maybe")
    assert main(["doctor"]) == 1
    assert main(["doctor", "no-such-run"]) == 1
    assert "no-such-run" in capsys.readouterr().err


def test_it_reads_well_at_eighty_columns_and_without_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    monkeypatch.setenv("GOODPUT_EVAL", "maybe")
    monkeypatch.setenv("COLUMNS", "80")
    write(tmp_path)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and max(map(len, out.splitlines())) <= 80
    assert "✗ GOODPUT_EVAL=maybe is not known" in out
    assert "\n    → Correct it, or unset it." in out
