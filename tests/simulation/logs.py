"""Writing a played job down, as a journal and as entries of Google's library and Orbax."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

from goodput_plugins.core.events import Activity, Event, Kind, in_order
from goodput_plugins.core.runlog import Life, RunLog
from simulation.tape import SECOND, Attempt, Job


def journal(job: Job) -> RunLog:
    """What our hooks would have written of the job."""
    lives = [
        Life(f"attempt-{i}", a.start, sorted((e for _, e in a.told), key=in_order)) for i, a in enumerate(job.attempts)
    ]
    lives += [Life(f"stranger-{start}", start, _stranger(start, end)) for start, end in job.strangers]
    return RunLog("played", sorted(lives, key=lambda life: life.start))


def _stranger(start: int, end: int) -> list[Event]:
    return [
        Event(Kind.START, start),
        Event(Kind.BEGIN, start + SECOND, activity=Activity.DEVICE_INIT),
        Event(Kind.FINISH, end - SECOND // 2, activity=Activity.DEVICE_INIT),
        Event(Kind.END, end, name="completed"),
    ]


def entries(job: Job, *, hosts: int = 1, lose: float = 0.0) -> list[dict[str, Any]]:
    """What ``gcloud logging read --format=json`` would print of the job.

    Args:
        job: one whose host does not run ahead.
        hosts: how many processes log the same, a little later each.
        lose: the share of step entries that never arrive.
    """
    rng = Random(job.plan.seed)
    written = [
        (told + host * SECOND // 200, _later(payload, host * SECOND // 200))
        for attempt in job.attempts
        for told, payload in _kept(attempt, job, rng, lose)
        for host in range(hosts)
    ]
    written.sort(key=lambda pair: pair[0])
    return [_entry(number, told, payload) for number, (told, payload) in enumerate(written)]


def _kept(attempt: Attempt, job: Job, rng: Random, lose: float) -> list[tuple[int, dict[str, Any]]]:
    """The entries of an attempt without the lost ones: steps in quiet stretches, far from both ends."""
    strange = {leaf.take.number + d for leaf in attempt.host if leaf.what == "slow" and leaf.take for d in (0, 1, 2)}
    numbers = [take.number for take in attempt.takes]
    safe = set(numbers[3:-3]) - strange if job.plan.every == 1 else set()
    return [e for e in attempt.entries if e[1].get("step_count") not in safe or rng.random() >= lose]


def _later(payload: dict[str, Any], delay: int) -> dict[str, Any]:
    return {k: v + delay if k.endswith("_time") and isinstance(v, int) else v for k, v in payload.items()}


def _entry(number: int, told: int, payload: dict[str, Any]) -> dict[str, Any]:
    seconds = {k: v / SECOND if k.endswith("_time") and isinstance(v, int) else v for k, v in payload.items()}
    return {
        "timestamp": datetime.fromtimestamp(told / SECOND, UTC).isoformat(),
        "insertId": f"{number:08}",
        "severity": "INFO",
        "logName": "projects/p/logs/goodput_played",
        "jsonPayload": {"job_name": "played", **seconds},
    }
