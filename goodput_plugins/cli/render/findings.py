"""Findings: what to look at first, by the seconds that it cost."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from goodput_plugins.cli.render.words import plain, shorten
from goodput_plugins.cli.units import duration
from goodput_plugins.core.report import Finding, Report


def findings(report: Report) -> RenderableType:
    """Each finding with its cost, its slug and its sentences, the most expensive first."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, justify="right", style="bold")
    grid.add_column(ratio=1, overflow="fold")
    for finding in sorted(report.findings, key=_most_expensive_first):
        told = Text(shorten(finding.id, 40), "bold")
        told.append(f"  {plain(finding.text)}", "not bold")
        grid.add_row(Text("" if finding.cost is None else duration(finding.cost)), told)
    return grid


def _most_expensive_first(finding: Finding) -> int:
    return 1 if finding.cost is None else -finding.cost
