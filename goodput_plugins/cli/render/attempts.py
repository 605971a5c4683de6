"""Attempts: when each lived, how far it came, how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.endings import ending, how_it_ended, mark
from goodput_plugins.cli.render.palette import style
from goodput_plugins.cli.render.words import listing
from goodput_plugins.cli.units import clock, day, duration
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import AttemptSummary, Report

_FIRST, _LAST = 3, 7
"""Of many attempts, so many of the earliest and of the latest are listed."""


def attempts(report: Report, canvas: Canvas) -> RenderableType:
    """A strip of time with all attempts on it, where there are several, and a table."""
    many = len(report.attempts) > _FIRST + _LAST + 1
    hidden = report.attempts[_FIRST:-_LAST] if many else ()
    drawn: list[RenderableType] = [_table(report, canvas, hidden)]
    if len(report.attempts) > 1 and report.end > report.start:
        drawn = [_strip(report, canvas), Text(), *drawn]
    if hidden:
        drawn += [Text(), Text(_summary(hidden), "dim")]
    return Group(*drawn)


def _table(report: Report, canvas: Canvas, hidden: Sequence[AttemptSummary]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    headings = _columns(("", "started", "lasted", "steps", "goodput", "ended"), canvas)
    for heading in headings[:-1]:
        grid.add_column(no_wrap=True, justify="right", min_width=len(heading))
    grid.add_column(overflow="fold")
    grid.add_row(*map(Text, headings), style="dim")
    for attempt in report.attempts:
        if attempt not in hidden:
            grid.add_row(*map(Text, _row(attempt, report, canvas)))
        elif attempt is hidden[0]:
            grid.add_row(Text("⋮", "dim"))
    return grid


def _columns(cells: Sequence[str], canvas: Canvas) -> list[str]:
    """The cells of a row that have room: the time of the start has none on a narrow canvas."""
    return [cell for i, cell in enumerate(cells) if i != 1 or not canvas.narrow]


def _row(attempt: AttemptSummary, report: Report, canvas: Canvas) -> list[str]:
    one_day = day(report.start) == day(report.end)
    started = clock(attempt.start, exact=one_day)
    ratio = attempt.breakdown.goodput_ratio
    cells = (
        str(attempt.number),
        started if one_day else f"{day(attempt.start)} {started}",
        duration(attempt.end - attempt.start),
        _steps(attempt),
        "" if ratio is None else f"{100 * ratio:.1f} %",
        how_it_ended(attempt),
    )
    return _columns(cells, canvas)


def _steps(attempt: AttemptSummary) -> str:
    first, last = attempt.first_step, attempt.last_step
    if first is None or last is None:
        return "none" if first is last else str(last if first is None else first)
    return str(first) if first == last else f"{first}-{last}"


def _summary(hidden: Sequence[AttemptSummary]) -> str:
    ends = Counter(ending(attempt.exit) for attempt in hidden).most_common(5)
    told = listing([f"{n} {how}" for how, n in ends])
    return f"Attempts {hidden[0].number} to {hidden[-1].number} are left out here: {told}. --json has them all."


def _strip(report: Report, canvas: Canvas) -> Text:
    """Lines for attempts, each with its number where there is room, marks for their ends, dots between."""
    alive, ended = (style(b, solid=canvas.solid) for b in (Bucket.PRODUCTIVE, Bucket.WASTED_PROGRESS))
    cells = [("·", "dim")] * canvas.width
    places = [_place(attempt, report, canvas.width) for attempt in report.attempts]
    for first, last in places:
        cells[first : last + 1] = [("━", alive)] * (last + 1 - first)
    for attempt, (_, last) in zip(report.attempts, places, strict=True):
        cells[last] = (mark(attempt.exit), ended if mark(attempt.exit) == "✗" else "bold")
    for attempt, (first, last) in zip(report.attempts, places, strict=True):
        number, free = str(attempt.number), first + (cells[first][0] != "━")
        if last - free > len(number):
            cells[free : free + len(number)] = [(figure, "bold") for figure in number]
    return Text.assemble(*cells)


def _place(attempt: AttemptSummary, report: Report, width: int) -> tuple[int, int]:
    """The first and the last cell of an attempt on a strip of ``width`` cells."""
    whole = report.end - report.start
    first, last = (
        min(width - 1, max(0, (moment - report.start) * width // whole)) for moment in (attempt.start, attempt.end - 1)
    )
    return first, max(first, last)
