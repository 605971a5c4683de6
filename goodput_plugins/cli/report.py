"""``goodput report``: find the data, calculate, show."""

from __future__ import annotations

import gc
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn

from goodput_plugins.cli import halves
from goodput_plugins.cli.progress import working
from goodput_plugins.cli.target import path_of
from goodput_plugins.core.attribution import Each, observe_ahead
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import RunLog

NARROWEST = 40
"""Fewer columns hold no report, and some systems say 0: then the terminal breaks the lines."""


def run(options: Namespace, *, now: int, usage_error: Callable[[str], NoReturn]) -> int:
    """Report on one run, or list several.

    Args:
        options: what :mod:`goodput_plugins.cli.arguments` parsed; and ``alone``: this process does nothing else.
        now: ns since the epoch.
        usage_error: tells a wrong usage and exits.
    """
    if options.project or options.logger:
        from goodput_plugins.cli.logged import path_of_log

        path = path_of_log(options.target, options.project, options.logger)
    else:
        path = path_of(options.target)
    by: Each = halves.each if options.alone and halves.worth_it(path) else map
    ahead = partial(observe_ahead, as_of=options.as_of) if by is not map else None
    with working(f"reading {path}"), _without_collector():
        logs = chosen(read(path, by, ahead), options.run, str(path))
        if options.json and len(logs) > 1:
            usage_error(f"{path} holds {len(logs)} jobs ({_names(logs)}); choose one with --run NAME")
        reports = [_calculated(log, options, now, by) for log in logs]
    if options.json:
        print(json.dumps(reports[0].to_json(), indent=2, allow_nan=False))
    else:
        _draw(reports)
    return 0


@contextmanager
def _without_collector() -> Iterator[None]:
    """Read without the garbage collector: millions of values are made, and no cycle among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def chosen(logs: list[RunLog], name: str | None, source: str) -> list[RunLog]:
    if not logs:
        raise UnusableData(f"{source} holds no run.")
    chosen = [log for log in logs if name in (None, log.run)]
    if not chosen:
        raise UnusableData(f"{source} holds no run {name!r}; there are: {_names(logs)}.")
    return chosen


def _calculated(log: RunLog, options: Namespace, now: int, each: Each) -> Report:
    window = None
    if options.start is not None or options.end is not None:
        start = min((life.start for life in log.lives), default=0) if options.start is None else options.start
        latest = now if options.as_of is None else options.as_of
        end = latest if options.end is None else options.end
        window = min(start, end), end
    report = calculate(
        log, now=now, as_of=options.as_of, window=window, generation=options.generation, ideal=options.ideal, each=each
    )
    if options.end is None and report.status == "completed" and report.attempts:
        return replace(report, end=min(report.end, report.attempts[-1].end))
    return report


def _draw(reports: list[Report]) -> None:
    from rich.console import Console

    from goodput_plugins.cli.render import show, show_several

    console = Console(file=sys.stdout)
    console.width = max(console.width, NARROWEST)
    if len(reports) == 1:
        show(reports[0], console)
    else:
        show_several(reports, console)
        print("One of them in full: --run NAME", file=sys.stderr)


def _names(logs: list[RunLog]) -> str:
    return ", ".join(log.run for log in logs)
