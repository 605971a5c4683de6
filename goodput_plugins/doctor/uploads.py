"""What the run's agent has sent, as it wrote beside the journals (``agent.json``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goodput_plugins import environ as env
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.name_lock import AGENT, NameLock
from goodput_plugins.core.shipper import STATUS
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ago, ok, unknown, warning, wrong

_CURES = {
    "prometheus": "Set GOODPUT_PROMETHEUS_ADDRESS to a host:port that is free; agent.log in the run's folder has more.",
    "tensorboard": "Set GOODPUT_TENSORBOARD_DIR to a folder that can be written, or make room; agent.log in the run's "
    "folder has more.",
}
"""What to do for an exporter that gets nothing and does not send to Google Cloud."""
PULLED = "prometheus"
"""What asks the agent for values itself, and has none when that has gone."""
STARTING_SECONDS = 30
"""An agent is there so long after its run's process began."""
LATE_SECONDS = 180
"""The agent of a living run has sent something in this time: its journal grows each 5 s."""


def uploads(case: Case) -> Iterator[Diagnosis]:
    """When something was sent last, and what the last try failed with."""
    status = case.agent
    if status is None:
        if case.exporters and case.folder is not None and not (case.folder / STATUS).exists():
            yield unknown(
                "uploads",
                "no agent has written in the run's folder",
                "Nothing is known to have been sent.",
                "Start the training with GOODPUT_EXPORTERS set, or an agent by hand: goodput agent RUN",
            )
        return
    age = case.now / 1e9 - _number(status, "moment")
    where, entries = status.get("destination") or "its destination", int(_number(status, "entries"))
    unsent = int(_number(status, "unsent"))
    if status.get("state") in ("failing", "unavailable"):
        left = f"; {unsent} bytes wait" if unsent else ""
        yield wrong(
            "uploads",
            f"the agent cannot send: {status.get('error') or 'it does not say why'}{left}",
            "What is recorded stays on disk, and is sent once that is mended.",
            "Look at the lines on Google Cloud here, and into agent.log in the run's folder.",
        )
    elif _is_alone(case):
        yield wrong(
            "uploads",
            f"the run lives, and its agent has gone; it told of itself last {ago(age)}",
            "What is recorded stays on disk, and is sent by the next agent.",
            "Look into agent.log in the run's folder; start another one: goodput agent RUN",
        )
    elif age > _late(case) and case.folder is not None and NameLock().is_taken(case.folder):
        yield wrong(
            "uploads",
            f"the run lives, and its agent has sent nothing for {age:.0f} s",
            "The agent is stopped, or hangs, or its disk is full and it cannot tell.",
            "Look into agent.log in the run's folder; kill that process, and start another one: goodput agent RUN",
        )
    elif unsent:
        yield warning(
            "uploads",
            f"the last agent ended with {unsent} bytes unsent",
            "They are on disk.",
            "The next start of the run sends them, or: goodput agent RUN",
        )
    elif entries:
        yield ok("uploads", f"{entries} entries were sent to {where}, the last ones {ago(age)}")
    elif not status.get("exporters"):
        yield ok("uploads", f"the agent has sent nothing yet; it told of itself last {ago(age)}")


def succession(case: Case) -> Iterator[Diagnosis]:
    """Whether the agent sends by the variables of the training that runs now."""
    names = (case.agent or {}).get("differing")
    folder = case.folder
    if not isinstance(names, list) or not names or folder is None:
        return
    if NameLock().is_taken(folder) and NameLock(AGENT).is_taken(folder):
        pid = int(_number(case.agent or {}, "pid"))
        yield warning(
            "succession",
            f"the agent was started by hand, with another {', '.join(map(str, names))} than the training",
            "It goes on with its own variables; the agent that the training that runs now started stands by.",
            f"To have the training's: kill {pid}",
        )


def _is_alone(case: Case) -> bool:
    """Whether the run's process lives, and no agent is there for it, nor can be about to come."""
    folder = case.folder
    if folder is None or not NameLock().is_taken(folder) or NameLock(AGENT).is_taken(folder):
        return False
    try:
        report = case.report
    except UnusableData:
        return False  # told as the journal's fault
    starts = [] if report is None else [attempt.start for attempt in report.attempts]
    return bool(starts) and (case.now - starts[-1]) / 1e9 > STARTING_SECONDS


def values(case: Case) -> Iterator[Diagnosis]:
    """When each exporter of reports last had values, and what keeps it from them."""
    for name, told in (case.agent or {}).get("exporters", {}).items():
        last, error = _number(told, "last_success"), str(told.get("last_error") or "")
        age = (_number(case.agent or {}, "moment") * 1e9 - last) / 1e9
        since = f"the last values went out {ago(case.now / 1e9 - last / 1e9)}"
        if error and (not last or age > _late(case)):
            yield wrong(
                "values",
                f"{name} gets nothing: {error[:200]}" + (f"; {since}" if last else ""),
                "It lacks the values of that time; journals and `goodput report` have everything.",
                _CURES.get(name, "Look at the lines on Google Cloud here, and into agent.log in the run's folder."),
            )
        elif last and name != PULLED and last < _ended(case) - 1e9:
            yield wrong(
                "values",
                f"{name}: {since}, before the run ended",
                "The agent went without the final ones; journals and `goodput report` have everything.",
                "Send them: goodput agent RUN",
            )
        elif last:
            yield ok("values", f"{name}: {since}")


def _ended(case: Case) -> float:
    """When the run ended, ns since the epoch, if it has and its agent has gone; 0 otherwise."""
    if case.folder is None or NameLock(AGENT).is_taken(case.folder):
        return 0.0
    try:
        report = case.report
    except UnusableData:
        return 0.0  # told as the journal's fault
    return 0.0 if report is None or report.status == "running" else float(report.attempts[-1].end)


def _late(case: Case) -> float:
    """After so long without a sign the agent of a living run does not send, s."""
    return LATE_SECONDS + float(env.UPLOAD_INTERVAL.read(case.environ))


def refused(case: Case) -> Iterator[Diagnosis]:
    """Entries and points that a service would not take."""
    status = case.agent
    if status is None:
        return
    counts = {"entries": int(_number(status, "dropped"))}
    errors = []
    for exporter, told in status.get("exporters", {}).items():
        counts[f"points of {exporter}"] = int(_number(told, "refused"))
        errors += [str(told["last_error"])] if told.get("last_error") else []
    refused = [f"{count} {what}" for what, count in counts.items() if count]
    if refused:
        why = f" ({errors[0][:200]})" if errors else ""
        yield warning(
            "refused",
            f"{' and '.join(refused)} were refused{why}",
            "They are not sent again; journals and `goodput report` have everything.",
            "One writer for each run name and GOODPUT_REPLICA_ID; GOODPUT_UPLOAD_INTERVAL of 10 s or more.",
        )
    else:
        yield ok("refused", "nothing was refused")


def _number(status: Mapping[str, Any], key: str) -> float:
    value = status.get(key, 0)
    return float(value) if isinstance(value, int | float) else 0.0


CHECKS = (uploads, succession, values, refused)
