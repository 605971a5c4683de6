"""From a run's log to its report: cumulative, as of any moment, or for any window.

Everything is attributed once, with all that is known at the moment of the query; then the window is
cut out of the segments. So adjacent windows add up to the bigger one, to the nanosecond.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from itertools import chain

from goodput_plugins.core.attribution import Generation, attribute
from goodput_plugins.core.attribution.generations import Attempt
from goodput_plugins.core.attribution.ideal import Histogram, deviation
from goodput_plugins.core.attribution.tally import Tally, Window, tally
from goodput_plugins.core.buckets import BADPUT, OWNER_OF, Bucket
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import Fact
from goodput_plugins.core.exits import CODE
from goodput_plugins.core.findings import findings, in_order_of_cost
from goodput_plugins.core.report import AttemptSummary, Breakdown, Finding, Report, StepFunction, StepSummary
from goodput_plugins.core.runlog import RunLog

ALWAYS_KNOWN = frozenset(
    {
        Bucket.TRAINING_PREP,
        Bucket.PROGRAM_STARTUP,
        Bucket.WASTED_PROGRESS,
        Bucket.INFRASTRUCTURE_RECOVERY,
        Bucket.OTHER,
    }
)
"""Buckets that need no hook of their own: the steps and the process show them."""


def calculate(
    log: RunLog,
    *,
    now: int,
    as_of: int | None = None,
    window: Window | None = None,
    generation: int | None = None,
    ideal: int | None = None,
) -> Report:
    """The report of one generation of a run.

    Args:
        log: the run.
        now: the wall clock, ns since the epoch.
        as_of: answer as of this moment: later events do not exist.
        window: only time from the first to the second, ns since the epoch.
        generation: which one, from 0; by default the newest (in the window).
        ideal: a configured ideal step time, ns.

    Raises:
        UnusableData: there is no attempt, or no such generation.
    """
    until = window[1] if window is not None else None
    timeline = attribute(log, as_of=as_of, now=now, until=until, ideal=ideal)
    chosen = _choose(log, timeline.generations, generation, until)
    current = timeline.generations[chosen]
    sums = tally(current, window)
    spent = Breakdown(sums.spent) + sums.overlapped
    unknown = _unknown(current, spent)
    preserved = None if Bucket.SAVE in unknown and not current.completed else sums.preserved
    found = [*findings(current, spent, preserved), *(Finding(slug, None, text) for slug, text in log.notes)]
    attempts = current.attempts
    last = attempts[-1]
    start, end = (current.start, current.end) if window is None else window
    return Report(
        run=log.run,
        generation=chosen,
        status=_status(last.exit),
        start=start,
        end=end,
        breakdown=spent,
        preserved=preserved,
        disruptions=_disruptions(current, window),
        attempts=_attempts(current, sums, window),
        steps=_steps(current, window, ideal),
        findings=tuple(in_order_of_cost(found)),
        plugins={name: version for a in attempts for name, version in a.seen.plugins.items()},
        unknown=unknown,
        down_since=last.until if _status(last.exit) in ("lost", "failed") else None,
    )


def _choose(log: RunLog, generations: list[Generation], wanted: int | None, until: int | None) -> int:
    if not generations:
        raise UnusableData(f"run {log.run!r}: no attempt has begun (no process took a step, or none ended otherwise).")
    if wanted is None:
        begun = [at for at, g in enumerate(generations) if until is None or g.start < until]
        return begun[-1] if begun else 0
    if not -len(generations) <= wanted < len(generations):
        last = len(generations) - 1
        raise UnusableData(f"run {log.run!r}: its generations are 0 to {last}; there is no {wanted}.")
    return wanted % len(generations)


def _unknown(generation: Generation, spent: Breakdown) -> frozenset[Bucket]:
    """Buckets that nothing armed could have seen.

    Waits for data are known only where one was seen: an armed loader hook that never saw its loader
    run says nothing of another loader.
    """
    seen = {
        bucket
        for attempt in generation.attempts
        for bucket in (attempt.seen.sees - {Bucket.DATA_LOADING_SYNC.value, Bucket.DATA_LOADING_ASYNC.value})
        | {OWNER_OF[i.activity][0].value for i in chain(attempt.seen.intervals, attempt.seen.elsewhere)}
        | ({Bucket.DATA_LOADING_SYNC.value} if attempt.seen.saw_waits else set())
    }
    known = ALWAYS_KNOWN | {bucket for bucket in Bucket if bucket.value in seen or spent[bucket]}
    if any(a.numbers is None for a in generation.attempts) and len(generation.attempts) > 1:
        known -= {Bucket.WASTED_PROGRESS}
    unknown = set(BADPUT) - known
    if Bucket.DATA_LOADING_SYNC in unknown:
        unknown.add(Bucket.DATA_LOADING_ASYNC)
    if not spent[Bucket.SAVE_ASYNC] and (Bucket.SAVE in unknown or generation.attempts[0].seen.foreign):
        unknown.add(Bucket.SAVE_ASYNC)
    return frozenset(unknown)


def _status(exit: str) -> str:
    named = {"running": "running", "completed": "completed", "user": "stopped", "lost": "lost"}
    return named.get(exit, "failed")


def _disruptions(generation: Generation, window: Window | None) -> int:
    if window is None:
        return generation.disruptions
    return sum(window[0] <= moment < window[1] for moment in generation.disrupted_at)


def _attempts(generation: Generation, sums: Tally, window: Window | None) -> tuple[AttemptSummary, ...]:
    low, high = window if window is not None else (generation.start, generation.end)
    return tuple(
        AttemptSummary(
            number=number,
            start=attempt.seen.start,
            end=attempt.until,
            exit=attempt.exit,
            exit_code=_exit_code(attempt),
            first_step=attempt.numbers[0] if attempt.numbers else None,
            last_step=attempt.numbers[-1] if attempt.numbers else None,
            cause=None,
            breakdown=Breakdown(spent),
        )
        for number, (attempt, spent) in enumerate(zip(generation.attempts, sums.by_attempt, strict=True))
        if attempt.seen.start <= high and attempt.until >= low
    )


def _exit_code(attempt: Attempt) -> int | None:
    """The code that the process asked to end with, where its journal tells."""
    end = attempt.seen.end
    code = end.data.get(CODE) if end is not None and isinstance(end.data, dict) else None
    return code if type(code) is int else None


def _steps(generation: Generation, window: Window | None, ideal: int | None) -> StepSummary:
    histogram = Histogram()
    recent: deque[int] = deque(maxlen=1_100)
    count = 0
    for ledger in generation.ledgers:
        times = array("q", ledger.step_times())
        histogram.add(times)
        recent.extend(times[-1_100:])
        count += ledger.kept_steps(*(window or (ledger.first_begin, ledger.until + 1)))
    known = [a for a in generation.attempts if a.numbers]
    last = known[-1].numbers[-1] if known and known[-1].numbers else None
    usual = ideal or histogram.ideal()
    return StepSummary(
        last=last,
        max_productive=_max_productive(generation, last),
        count=count,
        ideal=usual,
        p50=histogram.quantile(0.5),
        p99=histogram.quantile(0.99),
        deviation=deviation(list(recent), usual),
        source="device" if any(ledger.device is not None for ledger in generation.ledgers) else "host",
        functions=_step_functions(generation),
    )


def _step_functions(generation: Generation) -> tuple[StepFunction, ...]:
    calls: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for attempt in generation.attempts:
        for what, name, duration, often in attempt.seen.facts:
            if what == Fact.STEP_FUNCTION:
                calls[name] += often
                took[name] += duration
    return tuple(StepFunction(name, calls[name], took[name] or None) for name in sorted(calls, key=lambda n: -took[n]))


def _max_productive(generation: Generation, last: int | None) -> int | None:
    """The highest preserved step; where no checkpoint was ever seen, the last completed step."""
    if last is None:
        return None
    if generation.completed:
        return last + generation.ledgers[-1].unlogged
    if any(attempt.seen.saves for attempt in generation.attempts):
        return generation.preserved
    return last - 1 if last > 0 else None
