"""What a report holds, and its JSON.

A :class:`Breakdown` is nanoseconds by bucket; breakdowns add, so windows, attempts and hosts are
sums, and every ratio is a property. A :class:`Report` is a breakdown with its story: attempts,
steps, findings. Times are integer nanoseconds here and seconds in JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from goodput_plugins.core.buckets import BADPUT, OVERLAPPED, Bucket

SCHEMA = "goodput-report/1"

Source = tuple[Bucket, str | None]
"""A bucket and its sub-source (None: the bucket itself)."""


class Breakdown:
    """Nanoseconds by source; immutable by custom, and they add.

    Args:
        spent: nanoseconds by source.
    """

    def __init__(self, spent: Mapping[Source, int] | None = None) -> None:
        self.spent: Counter[Source] = Counter(spent or {})

    def __add__(self, other: Breakdown) -> Breakdown:
        total = Breakdown(self.spent)
        total.spent.update(other.spent)
        return total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Breakdown) and +self.spent == +other.spent

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inner = ", ".join(f"{b.value}{'.' + s if s else ''}: {n / 1e9:.3f} s" for (b, s), n in self.spent.items())
        return f"Breakdown({inner})"

    def __getitem__(self, bucket: Bucket) -> int:
        """All nanoseconds of a bucket, its sub-sources included."""
        return sum(n for (b, _), n in self.spent.items() if b is bucket)

    def detail(self, bucket: Bucket) -> dict[str, int]:
        """Nanoseconds of a bucket by sub-source, the named ones."""
        return {sub: n for (b, sub), n in self.spent.items() if b is bucket and sub is not None and n}

    @property
    def elapsed(self) -> int:
        """All time that counts: goodput and badput, without overlapped and excluded, ns."""
        return sum(n for (b, _), n in self.spent.items() if b is not Bucket.EXCLUDED and b not in OVERLAPPED)

    @property
    def goodput(self) -> int:
        """Productive nanoseconds."""
        return self[Bucket.PRODUCTIVE]

    @property
    def goodput_ratio(self) -> float | None:
        """Productive over elapsed, 0 to 1; None where nothing elapsed."""
        return self.goodput / self.elapsed if self.elapsed else None


@dataclass(frozen=True)
class Finding:
    """Something a reader should know, with the seconds it cost (ns; None where it has no price).

    Attributes:
        id: a slug; ``docs/messages.md`` has its cause and cure.
        cost: in ns.
        text: one or two plain sentences.
    """

    id: str
    cost: int | None
    text: str


@dataclass(frozen=True)
class AttemptSummary:
    """One life of the run's primary process (times in ns since the epoch)."""

    number: int
    start: int
    end: int
    exit: str
    exit_code: int | None
    first_step: int | None
    last_step: int | None
    cause: str | None
    breakdown: Breakdown


@dataclass(frozen=True)
class StepFunction:
    """One of several functions that together take the steps, over the whole generation, steps lost included.

    Attributes:
        calls: how many there were.
        device: how long the device worked on them, ns; None if that was not watched.
    """

    name: str
    calls: int
    device: int | None


@dataclass(frozen=True)
class StepSummary:
    """Steps of the generation; durations in ns, None where unknown.

    Attributes:
        last: the highest step that was started.
        max_productive: the highest preserved step.
        count: steps that were started and not rolled back.
        ideal: the ideal step time.
        p50: median step time, waits and other buckets subtracted.
        p99: 99th percentile, likewise.
        deviation: recent worst steps against the baseline (DESIGN section 3).
        source: ``device`` or ``host``: what told when a step's work was done.
        functions: where several take the steps (a GAN), each, the dearest first.
    """

    last: int | None = None
    max_productive: int | None = None
    count: int = 0
    ideal: int | None = None
    p50: int | None = None
    p99: int | None = None
    deviation: int | None = None
    source: str = "host"
    functions: tuple[StepFunction, ...] = ()


@dataclass(frozen=True)
class Report:
    """Where the time of one generation of a run went.

    Attributes:
        status: ``running``, ``completed``, ``failed``, ``stopped`` or ``lost``.
        breakdown: overlapped and excluded time included, under their own buckets.
        preserved: productive ns in preserved steps only; None where no checkpoint could be seen.
        unknown: buckets that nothing armed could have seen.
        down_since: when a run that is not alive was last seen; None if it is alive or has ended.
        plugins: version of each armed plugin's library.
    """

    run: str
    generation: int
    status: str
    start: int
    end: int
    breakdown: Breakdown
    preserved: int | None
    disruptions: int
    attempts: tuple[AttemptSummary, ...]
    steps: StepSummary
    findings: tuple[Finding, ...] = ()
    plugins: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[Bucket] = frozenset()
    down_since: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as DESIGN section 5 fixes it: seconds, null for what is not measured."""
        spent = self.breakdown
        return {
            "schema": SCHEMA,
            "run": self.run,
            "generation": self.generation,
            "status": self.status,
            "start_time": iso(self.start),
            "end_time": iso(self.end),
            "down_since": None if self.down_since is None else iso(self.down_since),
            "elapsed_seconds": seconds(spent.elapsed),
            "excluded_seconds": seconds(spent[Bucket.EXCLUDED]),
            "goodput_seconds": seconds(spent.goodput),
            "goodput_percent": percent(spent.goodput, spent.elapsed),
            "preserved_goodput_percent": percent(self.preserved, spent.elapsed),
            "badput_seconds": {bucket.value: self._badput(bucket) for bucket in BADPUT},
            "badput_detail": {
                bucket.value: {sub: seconds(n) for sub, n in spent.detail(bucket).items()}
                for bucket in BADPUT
                if bucket is not Bucket.CUSTOM and spent.detail(bucket)
            },
            "overlapped_seconds": {
                bucket.value: None if bucket in self.unknown else seconds(spent[bucket]) for bucket in OVERLAPPED
            },
            "disruptions": self.disruptions,
            "attempts": [_attempt(a) for a in self.attempts],
            "steps": _steps(self.steps),
            "plugins": dict(self.plugins),
            "findings": [
                {"id": f.id, "seconds": None if f.cost is None else seconds(f.cost), "text": f.text}
                for f in self.findings
            ],
        }

    def _badput(self, bucket: Bucket) -> float | dict[str, float] | None:
        if bucket in self.unknown and not self.breakdown[bucket]:
            return None
        if bucket is Bucket.CUSTOM:
            return {name: seconds(n) for name, n in self.breakdown.detail(bucket).items()}
        return seconds(self.breakdown[bucket])


def _attempt(a: AttemptSummary) -> dict[str, Any]:
    return {
        "attempt": a.number,
        "start_time": iso(a.start),
        "end_time": iso(a.end),
        "exit": a.exit,
        "exit_code": a.exit_code,
        "first_step": a.first_step,
        "last_step": a.last_step,
        "cause": a.cause,
        "elapsed_seconds": seconds(a.breakdown.elapsed),
        "goodput_seconds": seconds(a.breakdown.goodput),
    }


def _steps(s: StepSummary) -> dict[str, Any]:
    def maybe(n: int | None) -> float | None:
        return None if n is None else seconds(n)

    return {
        "last": s.last,
        "max_productive": s.max_productive,
        "count": s.count,
        "ideal_seconds": maybe(s.ideal),
        "p50_seconds": maybe(s.p50),
        "p99_seconds": maybe(s.p99),
        "deviation_seconds": maybe(s.deviation),
        "source": s.source,
        "functions": [{"name": f.name, "calls": f.calls, "device_seconds": maybe(f.device)} for f in s.functions],
    }


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, exact to the nanosecond up to 104 days."""
    return ns / 1_000_000_000


def percent(part: int | None, whole: int) -> float | None:
    """``part`` of ``whole`` in percent; None where either is unknown or nothing."""
    return None if part is None or not whole else 100 * part / whole


def iso(ns: int) -> str:
    """A time in ns since the epoch as ISO 8601 UTC, microseconds kept."""
    whole, rest = divmod(ns, 1_000_000_000)
    moment = datetime.fromtimestamp(whole, UTC).replace(microsecond=rest // 1000)
    return moment.isoformat().replace("+00:00", "Z")
