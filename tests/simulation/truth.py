"""Where each second of a played job truly went, by the rules of the design."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Kind
from goodput_plugins.core.report import Source
from simulation.tape import SECOND, Attempt, Job, Leaf, Take

SEEN: dict[str, Source] = {
    "boot": (Bucket.TRAINING_PREP, None),
    "import": (Bucket.TRAINING_PREP, "IMPORTS"),
    "init": (Bucket.TPU_INITIALIZATION, None),
    "prep": (Bucket.TRAINING_PREP, None),
    "restore": (Bucket.RESTORE, None),
    "replay": (Bucket.RESTORE, "DATA_REPLAY"),
    "data": (Bucket.DATA_LOADING_SYNC, None),
    "trace": (Bucket.PROGRAM_STARTUP, "TRACE"),
    "lower": (Bucket.PROGRAM_STARTUP, "LOWER"),
    "compile": (Bucket.PROGRAM_STARTUP, "COMPILE"),
    "save": (Bucket.SAVE, None),
    "wait": (Bucket.SAVE, None),
    "custom:EVAL_STEP": (Bucket.CUSTOM, "EVAL_STEP"),
    "custom:SDC_CHECK": (Bucket.CUSTOM, "SDC_CHECK"),
    "host": (Bucket.OTHER, "HOST_GAP"),
    "teardown": (Bucket.OTHER, "TEARDOWN"),
    "exit": (Bucket.OTHER, "TEARDOWN"),
}
FIRST_STEP: Source = (Bucket.PROGRAM_STARTUP, "FIRST_STEP")
SLOW_STEP: Source = (Bucket.OTHER, "SLOW_STEP")
HANG: Source = (Bucket.INFRASTRUCTURE_RECOVERY, "HANG")
STEPPING = ("work", "excess", "hiccup", "slow")
COMPILING = ("trace", "lower", "compile")
ENDING = ("host", "wait", "teardown", "exit")


@dataclass
class Truth:
    """The answer.

    Attributes:
        spent: ns by source; excluded time under its own bucket.
        either: ns of steps that an end cut off and no log shows: wasted, recovery or teardown.
        preserved: productive ns in steps inside a durable checkpoint; all of a completed run.
    """

    start: int
    end: int
    disruptions: int
    spent: Counter[Source] = field(default_factory=Counter)
    either: int = 0
    overlapped: Counter[Bucket] = field(default_factory=Counter)
    max_productive: int | None = None
    preserved: int = 0

    def __getitem__(self, bucket: Bucket) -> int:
        return sum(ns for (b, _), ns in self.spent.items() if b is bucket)


def truth(job: Job, *, foreign: bool = False) -> Truth:
    """Where the job's time went, as far as anyone could know who reads this kind of log."""
    begins = [a.job_start if foreign else a.start for a in job.attempts]
    signs = [_last_sign(a, foreign) for a in job.attempts]
    answer = Truth(begins[0], signs[-1], _disruptions(job, foreign))
    rolled = _rolled_back(job)
    worked: Counter[tuple[int, Take]] = Counter()
    for i, attempt in enumerate(job.attempts):
        judged = _Judge(job, i, foreign, begins[i], signs[i])
        for source, take, ns in judged.stretches():
            if take is not None:
                worked[i, take] += ns
            else:
                answer.spent[source] += ns
        answer.either += judged.either
        answer.overlapped[Bucket.SAVE_ASYNC] += sum(duration for _, _, duration in attempt.commits)
        answer.overlapped[Bucket.DATA_LOADING_ASYNC] += _overlapped_waits(attempt, signs[i])
        if i + 1 < len(job.attempts):
            answer.spent[_gap(attempt, foreign)] += begins[i + 1] - signs[i]
    durable = max((step for a in job.attempts for _, step, _ in a.commits), default=None)
    answer.max_productive = job.attempts[-1].takes[-1].number if job.attempts[-1].how == "completed" else durable
    for (i, take), ns in worked.items():
        wasted = (i, take) in rolled
        answer.spent[(Bucket.WASTED_PROGRESS if wasted else Bucket.PRODUCTIVE), None] += ns
        if not wasted and answer.max_productive is not None and take.number <= answer.max_productive:
            answer.preserved += ns
    return answer


def _last_sign(attempt: Attempt, foreign: bool) -> int:
    if foreign:
        return max(told for told, _ in attempt.entries)
    return max(e.time + ((e.duration or 0) if e.kind is Kind.SPAN else 0) for _, e in attempt.told)


def _disruptions(job: Job, foreign: bool) -> int:
    followed = len(job.attempts) - 1
    return sum(
        a.crashed or (i < followed and (foreign or a.noticed)) if not (foreign and i == followed) else False
        for i, a in enumerate(job.attempts)
    )


def _gap(attempt: Attempt, foreign: bool) -> Source:
    excluded = not foreign and not attempt.crashed and not attempt.noticed
    return (Bucket.EXCLUDED if excluded else Bucket.INFRASTRUCTURE_RECOVERY), None


def _rolled_back(job: Job) -> set[tuple[int, Take]]:
    kept: list[tuple[int, Take]] = []
    rolled: set[tuple[int, Take]] = set()
    for i, attempt in enumerate(job.attempts):
        for take in attempt.takes if attempt.logged else []:
            while kept and kept[-1][1].number >= take.number:
                rolled.add(kept.pop())
            kept.append((i, take))
    return rolled


def _overlapped_waits(attempt: Attempt, until: int) -> int:
    """Waits beside a busy device, and the work of prefetching threads."""
    waits = [leaf for leaf in attempt.host if leaf.what == "data"]
    whole = sum(min(leaf.end, until) - leaf.start for leaf in waits if leaf.start < until)
    stalled = sum(leaf.end - leaf.start for leaf in attempt.leaves(until) if leaf.what == "data")
    return whole - stalled + sum(min(took, until - start) for start, took in attempt.prefetches if start < until)


class _Judge:
    """Judges the leaves of one attempt."""

    def __init__(self, job: Job, index: int, foreign: bool, begin: int, sign: int) -> None:
        self.plan, self.attempt, self.foreign = job.plan, job.attempts[index], foreign
        self.sign = sign
        self.told = [_blocking(payload) for _, payload in self.attempt.entries if "event_type" in payload]
        self.crashed = self.attempt.crashed and not (foreign and self.attempt.job_end is not None)
        cut = self.attempt.leaves(sign)
        self.leaves = [leaf._replace(start=max(leaf.start, begin)) for leaf in cut if leaf.end > begin]
        self.logged = self.attempt.logged
        self.next = _next_number(job, index)
        self.either = 0
        self.limit = (self.plan.every + 1) * self.plan.ideal
        self.anomalies: Counter[int] = Counter()
        for leaf in self.leaves:
            if leaf.take is not None and not self.seen(leaf):
                self.anomalies[self.interval(leaf.take)] += (leaf.end - leaf.start) * (leaf.what != "work")

    def seen(self, leaf: Leaf) -> bool:
        """Whether the log names what this time was spent on."""
        if leaf.what in STEPPING:
            return False
        if self.foreign and leaf.what in ("save", "restore"):
            return any(start <= leaf.start < start + took for start, took in self.told)
        if self.foreign:
            return leaf.what not in (*COMPILING, "replay", "import", "wait")
        return leaf.told is None or leaf.told <= self.sign

    def interval(self, take: Take) -> int:
        """Which logged interval a step is in; -1 before the first."""
        return bisect_right(self.logged, take.id, key=lambda t: t.id) - 1

    def stretches(self) -> list[tuple[Source, Take | None, int]]:
        """(source, the step if it is progress, ns)."""
        if not self.logged:
            prep = (Bucket.TRAINING_PREP, None)
            return [(SEEN[x.what] if self.seen(x) else prep, None, x.end - x.start) for x in self.leaves]
        found: list[tuple[Source, Take | None, int]] = []
        last: list[Leaf] = []
        for leaf in self.leaves:
            if self.is_last(leaf):
                last.append(leaf)
            elif self.seen(leaf):
                found.append((SEEN[leaf.what], None, leaf.end - leaf.start))
            else:
                found.append((*self.unseen(leaf), leaf.end - leaf.start))
        return found + self.last_interval(last)

    def is_last(self, leaf: Leaf) -> bool:
        if leaf.take is not None:
            return self.interval(leaf.take) == len(self.logged) - 1
        at_end = leaf.what in ENDING or not self.seen(leaf)
        return at_end and leaf.start >= self.logged[-1].start

    def unseen(self, leaf: Leaf) -> tuple[Source, Take | None]:
        productive = (Bucket.PRODUCTIVE, None)
        if leaf.take is None:
            return (Bucket.TRAINING_PREP, None), None
        if leaf.what == "work":
            return productive, leaf.take
        interval = self.interval(leaf.take)
        first = -1 if not self.attempt.takes[0].logged else 0
        if interval == first:
            return FIRST_STEP, None
        anomaly = self.anomalies[interval]
        stuck = anomaly > self.limit and anomaly > SECOND // 10
        return (SLOW_STEP, None) if stuck else (productive, leaf.take)

    def last_interval(self, leaves: list[Leaf]) -> list[tuple[Source, Take | None, int]]:
        """Rule 6, and rule 5 where there is but one step: at most n ideal steps are progress."""
        last = self.logged[-1].number
        beyond = self.next is not None and self.next > last
        budget = min(self.plan.every, (self.next or 0) - last if beyond else self.plan.every) * self.plan.ideal
        single = len(self.logged) == 1 and self.attempt.takes[0].logged
        rest = FIRST_STEP if single else HANG if self.crashed else (Bucket.OTHER, "TEARDOWN")
        found: list[tuple[Source, Take | None, int]] = []
        for leaf in leaves:
            ns = leaf.end - leaf.start
            if leaf.take is None and not (leaf.what in ("save", "wait") and self.seen(leaf)):
                found.append((HANG if self.crashed else (Bucket.OTHER, "TEARDOWN"), None, ns))
            elif self.seen(leaf):
                found.append((SEEN[leaf.what], None, ns))
            elif beyond and leaf.take is not None and self.next is not None and self.next <= leaf.take.number:
                self.either += ns
            else:
                progress = ns if self.attempt.asynchronous and not single else min(ns, budget)
                budget -= progress
                found.append(((Bucket.PRODUCTIVE, None), leaf.take, progress))
                found.append((rest, None, ns - progress))
        return found


def _blocking(payload: dict[str, Any]) -> tuple[int, int]:
    """(start, ns) of the part of a save or restore that a payload tells of."""
    part = "checkpointer_blocking" if payload["event_type"] == "save" else "checkpointer"
    whole = part.replace("checkpointer", "checkpoint_manager")
    took = payload[f"{whole}_duration_secs"]
    return payload[f"{part}_start_time"], round((payload[f"{part}_duration_secs"] if took is None else took) * SECOND)


def _next_number(job: Job, index: int) -> int | None:
    """The first step that an attempt after this one runs."""
    return next((a.takes[0].number for a in job.attempts[index + 1 :] if a.logged), None)
