"""Steps: how long one should take and how long they took; what is safe and what is at risk."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.words import shorten
from goodput_plugins.cli.units import duration
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Breakdown, Report, StepSummary

_FUNCTIONS = 8
"""So many step functions are listed; ``--json`` has them all."""


def steps(report: Report, canvas: Canvas) -> RenderableType:
    """Step times side by side, and a sentence on what a crash now would cost."""
    s = report.steps
    figures = {name: None if ns is None else duration(ns) for name, ns in _times(s).items()}
    figures |= {"kept": str(s.count), "last": None if s.last is None else str(s.last)}
    known = {name: figure for name, figure in figures.items() if figure is not None}
    grid = Table.grid(padding=(0, 2 if canvas.narrow else 4, 0, 0))
    grid.add_row(*map(Text, known), style="dim")
    grid.add_row(*map(Text, known.values()))
    several: list[RenderableType] = [_functions(s), Text()] if s.functions else []
    return Group(grid, Text(), *several, Text(_risk(report)))


def _functions(s: StepSummary) -> Table:
    """Each of several step functions: its calls, and how long the device worked on them."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    for _ in range(3):
        grid.add_column(no_wrap=True, justify="right")
    grid.add_row(*map(Text, ("step function", "calls", "on the device", "each")), style="dim")
    for f in s.functions[:_FUNCTIONS]:
        times = ("", "") if f.device is None else (duration(f.device), duration(f.device // max(1, f.calls)))
        grid.add_row(*map(Text, (shorten(f.name, 30), f"{f.calls:,}", *times)))
    if len(s.functions) > _FUNCTIONS:
        grid.add_row(Text(f"and {len(s.functions) - _FUNCTIONS} more", "dim"))
    return grid


def _times(s: StepSummary) -> dict[str, int | None]:
    return {"ideal": s.ideal, "median": s.p50, "p99": s.p99, "deviation": s.deviation}


def _risk(report: Report) -> str:
    if report.preserved is None:
        return "No checkpoint could be seen, so what a crash would cost is not known."
    spent = report.breakdown
    at_risk = spent.goodput - report.preserved
    upto = "" if report.steps.max_productive is None else f" up to step {report.steps.max_productive}"
    if at_risk <= 0 and Bucket.SAVE in report.unknown and not spent[Bucket.SAVE]:
        return f"The run completed, so all productive time is preserved{upto}; no save of it was seen."
    if at_risk <= 0:
        return f"All productive time is preserved{upto}."
    if not report.preserved:
        return f"Nothing is preserved yet: {_part(at_risk, spent)} is at risk until the first commit."
    safe, open_ = _part(report.preserved, spent), _part(at_risk, spent)
    return f"Preserved{upto}: {safe}; {open_} more is at risk until the next commit."


def _part(ns: int, spent: Breakdown) -> str:
    return f"{duration(ns)} ({100 * ns / spent.elapsed:.1f} %)"
