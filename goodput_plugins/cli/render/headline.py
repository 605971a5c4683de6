"""The first thing seen: how much of the time was productive, of which run, and how it stands."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from goodput_plugins.cli.render import ledger
from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.digits import large
from goodput_plugins.cli.render.endings import status
from goodput_plugins.cli.render.palette import style
from goodput_plugins.cli.render.words import shorten
from goodput_plugins.cli.units import count, duration, share, span
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Report


def headline(report: Report, canvas: Canvas) -> RenderableType:
    """The goodput in large figures where they can be drawn, else in words; the facts beside or below."""
    figure = _figure(report)
    facts = Group(*_facts(report, canvas))
    if figure is None:
        return Group(Text("no time of the run falls into this span", "bold"), facts)
    if not canvas.big:
        return Group(Text(f"{figure} goodput", "bold"), facts)
    picture = Text.assemble(
        (large(figure.replace(" ", "")), style(Bucket.PRODUCTIVE, solid=canvas.solid)), ("\ngoodput", "dim")
    )
    if canvas.narrow:
        return Group(picture, Text(), facts)
    grid = Table.grid(padding=(0, 4, 0, 0))
    grid.add_row(picture, facts)
    return grid


def _figure(report: Report) -> str | None:
    if not report.breakdown.elapsed:
        return None
    productive = ledger.rows(report)[0]
    return share(productive.tenths, productive.spent)


def _facts(report: Report, canvas: Canvas) -> Iterator[Text]:
    name = shorten(report.run, canvas.width // 2)
    yield Text(name + (f", generation {report.generation}" if report.generation else ""), "bold")
    yield Text(status(report))
    lives = f", {count(len(report.attempts), 'attempt')}" if len(report.attempts) > 1 else ""
    disruptions = f", {count(report.disruptions, 'disruption')}" if report.disruptions else ""
    yield Text(f"{duration(report.breakdown.elapsed)} elapsed{lives}{disruptions}")
    yield Text(span(report.start, report.end), "dim")
