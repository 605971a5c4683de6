"""How an attempt ended, and how a run stands, in words.

>>> ending("signal:SIGKILL"), ending("exception:ValueError"), ending("lost")
('killed (SIGKILL)', 'raised ValueError', 'killed or lost')
"""

from __future__ import annotations

from goodput_plugins.cli.render.words import shorten
from goodput_plugins.cli.units import clock, day
from goodput_plugins.core.report import AttemptSummary, Report

_WORDS = {"completed": "completed", "user": "stopped by its user", "lost": "killed or lost", "running": "still running"}
_BY_CODE = "exception:SystemExit"
_MARKS = {"completed": "✓", "user": "■", "running": "▶"}


def ending(exit: str) -> str:
    """The words for the ``exit`` of an attempt."""
    what, _, name = exit.partition(":")
    if exit == _BY_CODE:
        return "ended itself"
    if what == "exception":
        return f"raised {shorten(name, 40)}"
    if what == "signal":
        return "killed (SIGKILL)" if name == "SIGKILL" else f"ended by {shorten(name, 20)}"
    return _WORDS.get(exit) or shorten(exit, 40)


def how_it_ended(attempt: AttemptSummary) -> str:
    """The end of an attempt, with its exit code and cause where they are known."""
    told = [ending(attempt.exit)]
    if attempt.exit_code is not None and not _implied(attempt):
        told.append(f"exit code {attempt.exit_code}")
    if attempt.cause:
        told.append(shorten(attempt.cause, 60))
    return ", ".join(told)


def _implied(attempt: AttemptSummary) -> bool:
    """Whether the words for the end already tell its exit code."""
    usual = {"completed": 0, "exception": 1}
    what = attempt.exit.partition(":")[0]
    return what == "signal" or (attempt.exit != _BY_CODE and usual.get(what) == attempt.exit_code)


def mark(exit: str) -> str:
    """One cell that tells how an attempt ended."""
    return _MARKS.get(exit, "✗")


def status(report: Report) -> str:
    """How the run stands."""
    if report.status == "running":
        last = report.steps.last
        return "running" if last is None else f"running, at step {last}"
    if report.status == "failed" and report.attempts:
        words = f"failed: {ending(report.attempts[-1].exit)}"
    else:
        words = {"stopped": "stopped by its user", "lost": "lost: no sign of life"}.get(report.status, report.status)
    if report.down_since is None:
        return words
    joint = "" if report.status == "lost" else ", down"
    return f"{words}{joint} since {day(report.down_since)} {clock(report.down_since, exact=True)} UTC"
