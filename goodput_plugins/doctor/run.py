"""Does the run record what it should?"""

from __future__ import annotations

from collections.abc import Iterator

from goodput_plugins import environ as env
from goodput_plugins.core import rundir
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.name_lock import NameLock
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ago, ok, unknown, warning, wrong

SILENT_SECONDS = 30
"""A process that lives writes a heartbeat each 5 s."""
_HELD = (
    "Each is a run of its own, with reports and series of its own. A restart takes the first of these names that is "
    "free, so it may go on with the other's.",
    "Give each job a GOODPUT_RUN_NAME of its own, the same over its restarts.",
)
"""What it means that two living processes wanted one name, and what to do."""
_LOSSES = {"unusable-journal", "lost-lines"}


def found(case: Case) -> Iterator[Diagnosis]:
    """Whether there is a run at all."""
    if case.path is None:
        below = rundir.remote(case.environ) or rundir.root(case.environ)
        yield unknown(
            "run",
            f"no run below {below}",
            "Nothing was recorded there yet, or it is recorded elsewhere.",
            "Train, set GOODPUT_DIR to where runs lie, or name one: goodput doctor RUN",
        )
    else:
        yield ok("run", f"{rundir.decode(case.folder.name) if case.folder else ''} in {case.folder}")


def journal(case: Case) -> Iterator[Diagnosis]:
    """Whether journals are written and can be read."""
    if case.path is None:
        return
    try:
        log = case.log
    except UnusableData as fault:
        yield wrong("journal", str(fault), "There is no report of this run.", "See docs/messages.md for this error.")
        return
    assert log is not None
    for slug, text in log.notes:
        if slug in _LOSSES:
            cure = "Make room on the disk." if slug == "lost-lines" else f"docs/messages.md says more of {slug}."
            yield warning("journal", text, "The report lacks what was lost.", cure)
    lives, report = len(log.lives), case.report
    if report is None:
        return
    silent = (case.now - report.end) / 1e9
    alive = case.folder is not None and NameLock().is_taken(case.folder)
    if alive and silent > SILENT_SECONDS:
        yield wrong(
            "journal",
            f"a process holds the run, and has written nothing for {silent:.0f} s",
            "It is stopped, or its disk does not answer.",
            "Look at the process and at the disk.",
        )
        return
    state = "being written now" if alive else f"last written {ago(silent)}"
    yield ok("journal", f"{lives} attempt{'' if lives == 1 else 's'} recorded, {state}")


def primary(case: Case) -> Iterator[Diagnosis]:
    """Whether process 0 recorded."""
    log = _log(case)
    if log is None:
        return
    if log.lives:
        told = env.rank(case.environ)
        here = f"; this shell is process {told[0]}" if told else ""
        yield ok("primary", f"the primary process recorded{here}")
    else:
        yield wrong(
            "primary",
            "only processes other than the primary one recorded",
            "Their time does not count, so there is no report.",
            "Set GOODPUT_DIR to one folder that all hosts share, or look on the host of process 0.",
        )


def steps(case: Case) -> Iterator[Diagnosis]:
    """Whether training steps were recognised."""
    log, report = _log(case), _report(case)
    if log is None or not log.lives:
        return
    if report is not None and (report.steps.count or report.steps.last is not None):
        yield ok("steps", f"{report.steps.count} steps recorded, the last one is {report.steps.last}")
        return
    text = "no training step was recognised"
    cure = "docs/jax.md and docs/pytorch.md tell which loops are; measurement.GoodputRecorder tells steps by hand."
    if report is not None and report.status == "running":
        yield warning("steps", text, "Training has not begun, or its loop is not known.", cure)
    else:
        yield wrong("steps", text, "All its time counts as preparation.", cure)


def armed(case: Case) -> Iterator[Diagnosis]:
    """Which plugins the run had, and which of them failed."""
    report = _report(case)
    if report is None:
        return
    for finding in report.findings:
        if finding.id == "plugin-failed":
            yield wrong(
                "armed",
                finding.text.rstrip("."),
                "Buckets of that plugin are too small.",
                "Look for the traceback in the job's stderr, and report it.",
            )
    if report.plugins:
        had = ", ".join(f"{name} {version}" for name, version in sorted(report.plugins.items()))
        yield ok("armed", f"plugins in this run: {had}")
    elif case.log is not None and "missing-segments" in dict(case.log.notes):
        yield unknown(
            "armed",
            "which plugins were armed is not known: the part of a journal that told it was deleted",
            "What they saw is recorded from there on, if there were any.",
            "Leave journals alone while a run may still be started again.",
        )
    else:
        yield warning(
            "armed",
            "no plugin was armed in this run",
            "It shows what the script told by hand only.",
            "Start it with GOODPUT_PLUGINS=auto.",
        )


def checkpoints(case: Case) -> Iterator[Diagnosis]:
    """Whether a checkpoint library was hooked."""
    report = _report(case)
    if report is None:
        return
    if Bucket.SAVE in report.unknown and not report.breakdown[Bucket.SAVE]:
        completed = report.status == "completed"
        end = "It completed, so all its steps are kept; before, nobody could tell what a crash would take."
        takes = end if completed else "What a crash would take is not known."
        yield warning(
            "checkpoints",
            "no checkpoint library was hooked",
            f"Saves and restores are not measured. {takes}",
            "Save with Orbax, Lightning or torch.save under the switch, or wrap your manager: "
            "goodput_plugins.orbax.wrap(manager)",
        )
    else:
        kept = report.steps.max_productive
        upto = "" if kept is None else f"; kept up to step {kept}"
        yield ok("checkpoints", f"saves and restores are seen{upto}")


def name(case: Case) -> Iterator[Diagnosis]:
    """Whether one name means one job."""
    report = _report(case)
    if report is None:
        return
    faults = []
    if report.generation:
        faults.append(f"{report.generation + 1} jobs, one after the other")
    if len(case.scripts) > 1:
        faults.append(f"{len(case.scripts)} scripts ({', '.join(sorted(case.scripts)[:3])})")
    if case.others or case.wanted:
        yield warning("run-name", _held(case, report.run), *_HELD)
    if faults:
        yield warning(
            "run-name",
            f"the name {report.run} was used by {'; by '.join(faults)}",
            "The report shows the newest job; in Cloud Monitoring a series has the run's name, so theirs mix.",
            "Give each job a GOODPUT_RUN_NAME of its own, the same over its restarts.",
        )
    elif not case.others and not case.wanted:
        yield ok("run-name", f"the name {report.run} means one job")


def _held(case: Case, run: str) -> str:
    """Which processes wanted the same name at the same time."""
    if case.wanted:
        return f"this run wanted the name {', '.join(sorted(case.wanted))}, which another living process held"
    return f"other processes wanted the name {run} while this one held it: they are {', '.join(case.others)}"


def _log(case: Case) -> RunLog | None:
    try:
        return case.log
    except UnusableData:
        return None  # told as the journal's fault


def _report(case: Case) -> Report | None:
    return None if _log(case) is None else case.report


CHECKS = (found, journal, primary, steps, armed, checkpoints, name)
