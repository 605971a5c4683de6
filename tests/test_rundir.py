"""Run names and folders: the same command joins its run, and any name is one path component."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goodput_plugins.core import rundir


def name_of(*argv: str, folder: str = "/home/u", environ: dict[str, str] | None = None) -> str:
    return rundir.run_name(environ or {}, argv=argv, original=["python", *argv], folder=folder)


def test_the_same_command_has_the_same_name_and_another_has_another() -> None:
    first = name_of("train.py", "--lr", "1")
    assert first.startswith("train-") and first == name_of("train.py", "--lr", "1")
    others = {name_of("train.py", "--lr", "2"), name_of("train.py", "--lr 1"), name_of("eval.py", "--lr", "1")}
    assert len(others | {first, name_of("train.py", "--lr", "1", folder="/home/v")}) == 5


def test_a_script_is_itself_however_its_path_is_spelled() -> None:
    assert name_of("train.py") == name_of("./train.py") == name_of("/home/u/train.py") == name_of("x/../train.py")


@pytest.mark.parametrize(
    ("argv", "title"),
    [(("/src/pkg/__main__.py",), "pkg"), (("-c",), "command"), (("",), "stdin"), (("-",), "stdin"), ((), "stdin")],
)
def test_programs_that_are_no_script_have_names_too(argv: tuple[str, ...], title: str) -> None:
    assert name_of(*argv).rpartition("-")[0] == title


def test_the_user_names_the_run_before_the_scheduler_does() -> None:
    slurm = {"SLURM_JOB_NAME": "llama"}
    assert name_of("train.py", environ=slurm) == "llama"
    assert name_of("train.py", environ=slurm | {"GOODPUT_RUN_NAME": "mine"}) == "mine"


def test_a_name_that_the_scheduler_made_up_is_none() -> None:
    assert name_of("train.py", environ={"SLURM_JOB_NAME": "bash"}) == name_of("train.py")


@given(st.text())
@example("..")
@example(".hidden")
@example("a/b\\c\0d\n")
@example("100% ~ umlaut ä")
@example("\udcff")
@example("x" * 1_000)
def test_any_name_is_one_path_component(name: str) -> None:
    component = rundir.encode(name)
    assert component.isascii() and component.isprintable() and 0 < len(component) <= 200
    assert os.path.basename(component) == component and not component.startswith(".")
    if "~" not in component:
        assert rundir.decode(component) == name


@given(st.text(max_size=30), st.text(max_size=30))
@example("", "%")
@example("x" * 300 + "a", "x" * 300 + "b")
def test_two_names_are_two_components(one: str, other: str) -> None:
    assert (rundir.encode(one) == rundir.encode(other)) == (one == other)


def test_a_relative_folder_is_relative_to_where_the_process_began() -> None:
    assert rundir.root({}, folder="/work") == Path("/work/goodput")
    assert rundir.root({"GOODPUT_DIR": "/data"}, folder="/work") == Path("/data")
    assert rundir.root({"GOODPUT_DIR": "~/runs"}, folder="/work") == Path.home() / "runs"


def test_journals_sort_by_the_start_of_their_process_and_say_their_rank(tmp_path: Path) -> None:
    starts = [1_780_000_000_000_000_000, 1_780_000_000_000_000_001, 1_790_000_000_500_000_000]
    names = [rundir.journal_name(start) for start in starts]
    assert names == sorted(names) and len({rundir.journal_name(starts[0]) for _ in range(100)}) == 100
    assert rundir.journal_name(starts[0], 3).endswith("-p3.jsonl")
    for name in reversed(names):
        (tmp_path / name).touch()
    (tmp_path / "notes.txt").touch()
    assert [path.name for path in rundir.journals(tmp_path)] == names


def test_the_newest_run_is_the_one_that_began_last(tmp_path: Path) -> None:
    assert rundir.newest_run(tmp_path / "nothing") is None
    for run, start in (("b", 3), ("a", 5), ("c", 4)):
        folder = rundir.run_dir(run, tmp_path)
        folder.mkdir()
        (folder / rundir.journal_name(start * 10**9)).touch()
    (tmp_path / "z-empty").mkdir()
    assert rundir.newest_run(tmp_path) == tmp_path / "a"
