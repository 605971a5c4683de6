"""The report on a terminal, in a pipe, in a file: right at any width, and only what the data says.

The texts in ``tests/golden/`` are what a pipe of 80 columns gets. After a wanted change::

    GOODPUT_WRITE_GOLDEN=1 python -m pytest tests/test_cli_render.py -k golden

writes them anew; read the diff before committing it.
"""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import SAMPLES
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from goodput_plugins.cli.render import ledger, show, show_several
from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.palette import LETTERS
from goodput_plugins.cli.units import duration
from goodput_plugins.core.buckets import BADPUT, LABELS, Bucket
from goodput_plugins.core.report import Breakdown, Finding, Report

GOLDEN = Path(__file__).parent / "golden"
every_sample = pytest.mark.parametrize("report", SAMPLES.values(), ids=SAMPLES)


def piped(report: Report, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    show(report, Console(file=file, width=width, _environ={}))
    file.flush()
    return raw.getvalue().decode(encoding)


def on_terminal(report: Report, width: int = 80, colors: str = "truecolor", **environ: str) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=True, color_system=colors, _environ={"TERM": "xterm", **environ}
    )  # type: ignore[arg-type]
    show(report, console)
    return file.getvalue()


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_text(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = piped(SAMPLES[name])
    if os.environ.get("GOODPUT_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_every_golden_text_belongs_to_a_sample() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(SAMPLES)


@every_sample
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(report: Report, width: int) -> None:
    for text in (piped(report, width), without_escapes(on_terminal(report, width))):
        assert max(cell_len(line) for line in text.splitlines()) <= width


@every_sample
def test_a_pipe_gets_no_escape_code(report: Report) -> None:
    assert "\x1b" not in piped(report)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", piped(report))


@every_sample
def test_a_name_cannot_command_the_terminal(report: Report) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", without_escapes(on_terminal(report)))


@every_sample
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_blocks_gets_ascii_of_the_same_shape(report: Report, encoding: str) -> None:
    plain, full = piped(report, encoding=encoding), piped(report)
    assert plain.isascii()
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in full.splitlines()]


@every_sample
def test_without_colour_the_bar_says_the_same_in_letters(report: Report) -> None:
    by_letter = on_terminal(report, NO_COLOR="1")
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9\d)[;m]", by_letter)
    letters = re.escape("".join(LETTERS.values()))
    bars = re.findall(rf"^  ([{letters}]{{76}})$", without_escapes(by_letter), re.M)
    assert len(bars) == bool(report.breakdown.elapsed)
    assert {LETTERS[row.bucket] for row in ledger.rows(report) if row.tenths >= 15} <= set("".join(bars))


@every_sample
def test_a_terminal_of_16_colours_gets_letters_too(report: Report) -> None:
    text = without_escapes(on_terminal(report, colors="standard"))
    for row in ledger.rows(report):
        if row.spent:
            assert f"\n  {LETTERS[row.bucket]}   {LABELS[row.bucket]} " in text


@every_sample
def test_every_bucket_with_time_is_shown_with_its_time_and_no_other(report: Report) -> None:
    text = piped(report)
    for bucket in (Bucket.PRODUCTIVE, *BADPUT):
        row = re.search(rf"^  .   {LABELS[bucket]} +(.*?)  +(?:< )?[\d.]+ %", text, re.M)
        if report.breakdown[bucket]:
            assert row is not None and row[1] == duration(report.breakdown[bucket])
        elif bucket is not Bucket.PRODUCTIVE:
            assert row is None


times = st.dictionaries(
    st.tuples(st.sampled_from(list(Bucket)), st.sampled_from([None, "ONE", "TWO"])), st.integers(0, 10**16)
)


@given(times)
def test_shares_sum_to_a_hundred_and_agree_with_the_json(spent: dict[tuple[Bucket, str | None], int]) -> None:
    report = replace(SAMPLES["tidy-run"], breakdown=Breakdown(spent))
    rows = ledger.rows(report)
    elapsed = report.breakdown.elapsed
    assert sum(row.tenths for row in rows) == (1000 if elapsed else 0)
    for row in rows:
        assert abs(row.tenths - (1000 * row.spent / elapsed if elapsed else 0)) <= 1.001
    percent = report.to_json()["goodput_percent"]
    if percent is not None and percent < 99.9:
        assert rows[0].tenths / 10 == pytest.approx(percent, abs=0.0501)
    assert elapsed == report.breakdown.goodput or rows[0].tenths < 1000


def test_the_number_of_a_bucket_follows_the_report() -> None:
    report = SAMPLES["crash-and-restart"]
    changed = replace(report, breakdown=report.breakdown + Breakdown({(Bucket.SAVE, None): 1_234 * 10**9}))
    assert "1 min 01 s" in piped(report) and "1 min 01 s" not in piped(changed)
    assert "21 min 35 s" in piped(changed)


def test_unknown_is_told_from_zero() -> None:
    seen, unseen = piped(SAMPLES["tidy-run"]), piped(SAMPLES["failed"])
    assert "restore" not in seen.replace("\n  ", " ")
    assert "Not measured: checkpoint save, checkpoint restore and checkpoint write (needs the orbax plugin" in (
        unseen.replace("\n  ", " ")
    )


def test_findings_come_by_what_they_cost_and_the_priceless_last() -> None:
    text = piped(SAMPLES["crash-and-restart"])
    places = [text.index(slug) for slug in ("rolled-back", "recompiles", "torn-line")]
    assert places == sorted(places)


def test_a_finding_of_markup_is_shown_as_it_is() -> None:
    finding = Finding("slug", None, "[bold]not bold[/bold] :smile: \x1b[31mred")
    text = on_terminal(replace(SAMPLES["tidy-run"], findings=(finding,)))
    assert "[bold]not bold[/bold] :smile:  [31mred" in text


def test_the_strip_has_each_attempt_with_its_number_and_its_end() -> None:
    assert re.search(r"^  0━+✗·1━+✓$", piped(SAMPLES["crash-and-restart"]), re.M)
    assert re.search(r"^  0━+✗1━+✓$", piped(SAMPLES["several-days"]), re.M), "no gap that shows"
    assert re.search(r"^  ━■·+━■$", piped(SAMPLES["stopped-and-resumed"]), re.M), "no room for numbers"
    (crowded,) = re.findall(r"^  ([━✗✓]{76})$", piped(SAMPLES["forty-attempts"]), re.M)
    assert (crowded.count("✗"), crowded.count("✓")) == (39, 1)


def test_of_forty_attempts_the_middle_is_summed_up() -> None:
    text = piped(SAMPLES["forty-attempts"]).replace("\n  ", " ")
    assert "Attempts 3 to 32 are left out here: 16 killed (SIGKILL), 7 ended by SIGTERM and 7 raised" in text
    assert len(re.findall(r"\d+ Nov \d\d:\d\d +\d+ min", piped(SAMPLES["forty-attempts"]))) == 10


def test_several_jobs_are_a_line_each() -> None:
    file = io.StringIO()
    show_several(SAMPLES.values(), Console(file=file, width=80, _environ={}))
    lines = file.getvalue().splitlines()
    assert len(lines) == len(SAMPLES)
    assert max(map(cell_len, lines)) <= 80
    assert re.search(r"^ +79.3 % +2 h 03 min  digits-3f2a  completed$", file.getvalue(), re.M)


def test_large_figures_are_for_terminals_that_can_draw_them() -> None:
    report = SAMPLES["crash-and-restart"]
    assert "79.3 % goodput" in piped(report)
    assert "79.3 % goodput" in on_terminal(report, TERM="dumb")
    assert "▀▀█ █▀█   ▀▀█" in without_escapes(on_terminal(report))


def test_a_very_wide_terminal_is_not_filled() -> None:
    console = Console(width=400, file=sys.stdout)
    assert Canvas.of(console).width < 120
