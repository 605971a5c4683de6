"""From a run's log to its report: cumulative, as of any moment, or for any window.

Everything is attributed once, with all that is known at the moment of the query; then the window is
cut out of the segments. So adjacent windows add up to the bigger one, to the nanosecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import add

from goodput_plugins.core.attribution import Each, Generation, attribute
from goodput_plugins.core.attribution.generations import Attempt
from goodput_plugins.core.attribution.ledger import WAIT, Beside
from goodput_plugins.core.attribution.past import Block, preserved_of
from goodput_plugins.core.attribution.tally import Tally, Window, tally_one, whole
from goodput_plugins.core.attribution.timeline import PRODUCTIVE, WASTED
from goodput_plugins.core.buckets import BADPUT, OWNER_OF, Bucket
from goodput_plugins.core.earlier import Earlier, Ended, Told, joined
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import EXIT_CODE
from goodput_plugins.core.findings import findings, in_order_of_cost
from goodput_plugins.core.report import AttemptSummary, Breakdown, Finding, Report, Source
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.core.step_summary import StepTimes, summary_of
from goodput_plugins.core.story import Story

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
    each: Each = map,
) -> Report:
    """The report of one generation of a run.

    Args:
        log: the run.
        now: the wall clock, ns since the epoch.
        as_of: answer as of this moment: later events do not exist.
        window: only time from the first to the second, ns since the epoch.
        generation: which one, from 0; by default the newest (in the window).
        ideal: a configured ideal step time, ns.
        each: as :func:`~goodput_plugins.core.attribution.attribute` takes it.

    Raises:
        UnusableData: there is no attempt, or no such generation.
    """
    until = window[1] if window is not None else None
    timeline = attribute(log, as_of=as_of, now=now, until=until, ideal=ideal, each=each)
    chosen = choose(log, timeline.generations, generation, until)
    return report_of(log, timeline.generations[chosen], chosen, window=window, ideal=ideal, each=each)


def report_of(
    log: RunLog,
    current: Generation,
    number: int,
    *,
    window: Window | None = None,
    ideal: int | None = None,
    earlier: Earlier | None = None,
    each: Each = map,
) -> Report:
    """The report of a generation that was attributed, or of what ``earlier`` holds and what followed.

    A ``window`` begins after the moment of ``earlier``.

    Raises:
        Unsettled: what is preserved cannot be told from that.
    """
    earlier = earlier or Earlier()
    low, high = window or (earlier.moment, current.end)
    blocks, taken = (current.blocks, current.taken) if window is None else ([], [])
    if window is not None:
        earlier = earlier.without_time()

    def sum_up(life: int) -> tuple[Tally, StepTimes]:
        steps = StepTimes.of(current.ledgers[life], earlier.width)
        return tally_one(current, life, (low or current.start, high), alone=window is not None), steps

    summed_up = list(each(sum_up, range(len(current.ledgers))))
    sums = whole(tallied for tallied, _ in summed_up)
    ended = _ended(earlier, blocks, taken)
    by_attempt = joined(ended.spent, sums.by_attempt)
    overlapped = _overlapped(sums, by_attempt, earlier)
    spent = overlapped
    for part in (sums.between, earlier.between, ended.total, *by_attempt[len(ended.summaries) :]):
        spent.spent.update(part)
    unknown = _unknown(current, spent, earlier)
    preserved = sums.preserved + preserved_of(blocks, current.preserved, completed=current.completed)
    at_hand = None if Bucket.SAVE in unknown and not current.completed else preserved
    story = earlier.story + Story.of(current, frozenset(earlier.story.compiled))
    found = [*findings(current, spent, at_hand, story), *(Finding(slug, None, text) for slug, text in log.notes)]
    last = current.attempts[-1]
    start, end = window or (earlier.start or current.start, current.end)
    return Report(
        run=log.run,
        generation=number,
        status=_status(last.exit),
        start=start,
        end=end,
        breakdown=spent,
        preserved=at_hand,
        disruptions=story.often["disruption",] if window is None else _disruptions(current, window),
        attempts=(*(ended.summaries if window is None else ()), *_attempts(current, by_attempt, (start, end), earlier)),
        steps=summary_of(current, [times for _, times in summed_up], window, ideal, earlier, story),
        findings=tuple(in_order_of_cost(found)),
        plugins=earlier.plugins | {name: version for a in current.attempts for name, version in a.seen.plugins.items()},
        unknown=unknown,
        down_since=last.until if _status(last.exit) in ("lost", "failed") else None,
    )


def _ended(earlier: Earlier, blocks: Sequence[Block], taken: Sequence[Block]) -> Ended:
    """The attempts that were put aside; made anew only where another part of their progress stands."""
    known = earlier.ended
    if known is not None and known.standing == len(blocks):
        return known
    spent = [Counter(attempt.spent) for attempt in earlier.attempts]
    for source, some in ((PRODUCTIVE, blocks), (WASTED, taken)):
        for block in some:
            spent[block.attempt][source] += block.ns
    told = enumerate(zip(earlier.attempts[:-1], spent, strict=False))
    summaries = tuple(_summary(number, attempt, counts) for number, (attempt, counts) in told)
    total: Counter[Source] = Counter()
    for counts in spent[:-1]:
        total.update(counts)
    earlier.ended = Ended(len(blocks), spent, summaries, total)
    return earlier.ended


def _overlapped(sums: Tally, by_attempt: list[Counter[Source]], earlier: Earlier) -> Breakdown:
    """Work beside the training thread; it owns no time."""
    beside = list(sums.beside)
    first = max(0, len(earlier.attempts) - 1)
    if earlier.attempts:
        beside[0] = Beside(*map(add, beside[0], earlier.beside))
    told = zip(beside, by_attempt[first:], strict=True)
    return sum((work.overlapped(spent[WAIT]) for work, spent in told), Breakdown(earlier.overlapped))


def choose(log: RunLog, generations: list[Generation], wanted: int | None, until: int | None) -> int:
    """Which generation to report on: the one that is wanted, else the newest that began before a window's end.

    Raises:
        UnusableData: there is no such generation.
    """
    if not generations:
        raise nothing_begun(log)
    if wanted is None:
        begun = [at for at, g in enumerate(generations) if until is None or g.start < until]
        return begun[-1] if begun else 0
    if not -len(generations) <= wanted < len(generations):
        last = len(generations) - 1
        raise UnusableData(f"run {log.run!r}: its generations are 0 to {last}; there is no {wanted}.")
    return wanted % len(generations)


def nothing_begun(log: RunLog) -> UnusableData:
    """The error of a run without an attempt."""
    return UnusableData(f"run {log.run!r}: no attempt has begun (no process took a step, or none ended otherwise).")


def _unknown(generation: Generation, spent: Breakdown, earlier: Earlier) -> frozenset[Bucket]:
    """Buckets that nothing armed could have seen.

    Waits for data are known only where one was seen: an armed loader hook that never saw its loader
    run says nothing of another loader.
    """
    seen = earlier.sees | seen_in(generation)
    known = ALWAYS_KNOWN | {bucket for bucket in Bucket if bucket.value in seen or spent[bucket]}
    if any(a.numbers is None for a in generation.attempts) and len(generation.attempts) > 1:
        known -= {Bucket.WASTED_PROGRESS}
    unknown = set(BADPUT) - known
    if Bucket.DATA_LOADING_SYNC in unknown:
        unknown.add(Bucket.DATA_LOADING_ASYNC)
    if not spent[Bucket.SAVE_ASYNC] and (Bucket.SAVE in unknown or generation.attempts[0].seen.foreign):
        unknown.add(Bucket.SAVE_ASYNC)
    return frozenset(unknown)


def seen_in(generation: Generation) -> set[str]:
    """The buckets that its hooks could see, or that something showed."""
    return {
        bucket
        for attempt in generation.attempts
        for bucket in (attempt.seen.sees - {Bucket.DATA_LOADING_SYNC.value, Bucket.DATA_LOADING_ASYNC.value})
        | {OWNER_OF[i.activity][0].value for i in chain(attempt.seen.intervals, attempt.seen.elsewhere)}
        | ({Bucket.DATA_LOADING_SYNC.value} if attempt.seen.saw_waits else set())
    }


def _status(exit: str) -> str:
    named = {"running": "running", "completed": "completed", "user": "stopped", "lost": "lost"}
    return named.get(exit, "failed")


def _disruptions(generation: Generation, window: Window) -> int:
    return sum(window[0] <= moment < window[1] for moment in generation.disrupted_at)


def _attempts(
    generation: Generation, by_attempt: list[Counter[Source]], window: Window, earlier: Earlier
) -> Iterator[AttemptSummary]:
    """The attempts that were not put aside, or not in whole."""
    low, high = window
    told = [told_of(attempt) for attempt in generation.attempts]
    first = max(0, len(earlier.attempts) - 1)
    if earlier.attempts:
        told[0] = replace(told[0], first_step=earlier.attempts[-1].first_step)
    for number, (attempt, spent) in enumerate(zip(told, by_attempt[first:], strict=True), first):
        if attempt.start <= high and attempt.end >= low:
            yield _summary(number, attempt, spent)


def _summary(number: int, attempt: Told, spent: Counter[Source]) -> AttemptSummary:
    return AttemptSummary(
        number=number,
        start=attempt.start,
        end=attempt.end,
        exit=attempt.exit,
        exit_code=attempt.exit_code,
        first_step=attempt.first_step,
        last_step=attempt.last_step,
        cause=None,
        breakdown=Breakdown(spent),
    )


def told_of(attempt: Attempt) -> Told:
    """What is told of an attempt."""
    return Told(
        start=attempt.seen.start,
        end=attempt.until,
        exit=attempt.exit,
        exit_code=_exit_code(attempt),
        first_step=attempt.numbers[0] if attempt.numbers else None,
        last_step=attempt.numbers[-1] if attempt.numbers else None,
    )


def _exit_code(attempt: Attempt) -> int | None:
    """The code that the process asked to end with, where its journal tells."""
    end = attempt.seen.end
    code = end.data.get(EXIT_CODE) if end is not None and isinstance(end.data, dict) else None
    return code if type(code) is int else None
