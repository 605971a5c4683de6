"""Findings: what a reader of a report should know, in order of the seconds that it cost.

Each has a slug; ``docs/messages.md`` has its cause and cure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity, Fact
from goodput_plugins.core.report import Breakdown, Finding

NAMED = 3
"""How many functions a finding names."""
WORTH_TELLING = 0.01
"""Everyday badput is a finding from this share of the elapsed time on."""


def findings(generation: Generation, spent: Breakdown, preserved: int | None) -> list[Finding]:
    """All findings about a generation, dearest first.

    Args:
        generation: attributed.
        spent: where the time went, in the window that is reported.
        preserved: productive ns in preserved steps; None where no checkpoint could be seen.
    """
    found = [
        *_disruptions(generation, spent),
        *_steps(generation, spent),
        *_recompiles(generation),
        *_program_cache(generation),
        *_looks_like_evaluation(generation, spent),
        *_shares(spent),
        *_checkpoints(generation, spent, preserved),
        *_log(generation, spent),
    ]
    return in_order_of_cost(found)


def in_order_of_cost(found: list[Finding]) -> list[Finding]:
    """Dearest first; those without a price last."""
    return sorted(found, key=lambda f: (f.cost is None, -(f.cost or 0), f.id))


def _disruptions(generation: Generation, spent: Breakdown) -> Iterator[Finding]:
    wasted = spent[Bucket.WASTED_PROGRESS]
    if wasted:
        steps = sum((stop - start) * ledger.stride for ledger in generation.ledgers for start, stop in ledger.lost)
        text = f"{_count(steps, 'step')} were rolled back and done again. Saving more often loses less."
        yield Finding("wasted-progress", wasted, text)
    hang = spent.detail(Bucket.INFRASTRUCTURE_RECOVERY).get("HANG", 0)
    if hang:
        text = "The process was alive but took no step before it ended: a hang, most likely in a collective."
        yield Finding("hang", hang, text)
    gap = spent[Bucket.INFRASTRUCTURE_RECOVERY] - hang
    if gap:
        text = f"Nothing ran between attempts ({_count(generation.disruptions, 'disruption')})."
        yield Finding("restart-gap", gap, text)
    if any(a.numbers is None for a in generation.attempts) and len(generation.ledgers) > 1:
        text = "Step numbers after the restart are unknown, so wasted progress is not known."
        yield Finding("unknown-step-numbers", None, text)


def _steps(generation: Generation, spent: Breakdown) -> Iterator[Finding]:
    slow = spent.detail(Bucket.OTHER).get("SLOW_STEP", 0)
    if slow:
        stuck = [(ns, ledger.numbers[at]) for ledger in generation.ledgers for at, ns in ledger.slow.items()]
        worst = ", ".join(str(number) for _, number in sorted(sorted(stuck, reverse=True)[:3], key=lambda s: s[1]))
        among = "" if len(stuck) <= 3 else " among them"
        text = f"{_count(len(stuck), 'step')} took far longer than the ideal ({worst}{among}); no hook saw why."
        yield Finding("slow-steps", slow, text)
    last = generation.ledgers[-1]
    open_step = last.slow.get(len(last.begins) - 1) if last.attempt.exit == "running" else None
    if open_step:
        text = f"The step that is running now ({last.numbers[-1]}) is overdue. Is it hanging?"
        yield Finding("stuck-now", open_step, text)
    if any(ledger.bursty for ledger in generation.ledgers):
        text = "The host runs ahead and blocks now and then, so single step times mean little; the mean is used."
        yield Finding("bursty-host", None, text)


def _recompiles(generation: Generation) -> Iterator[Finding]:
    """Functions that were compiled again after the first step of an attempt."""
    took: defaultdict[str, list[int]] = defaultdict(list)
    for ledger in generation.ledgers:
        stepping = ledger.begins[1] if len(ledger.begins) > 1 else ledger.until
        compiled: set[str] = set()
        for interval in sorted(ledger.attempt.seen.intervals, key=lambda i: i.start):
            if interval.activity in (Activity.COMPILE, Activity.CACHE_LOAD) and interval.name and interval.end:
                if interval.name in compiled and interval.start >= stepping:
                    took[interval.name].append(interval.end - interval.start)
                compiled.add(interval.name)
    if took:
        dearest = sorted(took, key=lambda name: -sum(took[name]))
        named = ", ".join(f"{name} ({len(took[name])} x, {sum(took[name]) / 1e9:.1f} s)" for name in dearest[:NAMED])
        more = f" and {_count(len(dearest) - NAMED, 'other')}" if len(dearest) > NAMED else ""
        times = sum(map(len, took.values()))
        text = f"{_count(times, 'compilation')} of what had been compiled: {named}{more}."
        yield Finding("recompiles", sum(map(sum, took.values())), text)


def _program_cache(generation: Generation) -> Iterator[Finding]:
    """What the persistent cache of compiled programs was worth."""
    facts = [fact for attempt in generation.attempts for fact in attempt.seen.facts]
    saved = [duration for what, _, duration, _ in facts if what == Fact.CACHE_SAVED]
    missed = Counter(name for what, name, _, _ in facts if what == Fact.CACHE_MISS)
    if saved or missed:
        had = _count(len(saved), "program")
        text = f"The persistent cache had {had}, which saved {sum(saved) / 1e9:.1f} s of compiling"
        if missed:
            names = ", ".join(name for name, _ in missed.most_common(NAMED))
            text += f"; it lacked {sum(missed.values()):,}: {names}" + (", ..." if len(missed) > NAMED else "")
        yield Finding("program-cache", None, text + ".")


def _looks_like_evaluation(generation: Generation, spent: Breakdown) -> Iterator[Finding]:
    """Functions that ran now and then between steps; one that runs at every other step belongs to them."""
    took: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for attempt in generation.attempts:
        for what, name, duration, often in attempt.seen.facts:
            if what == Fact.OTHER_WORK:
                took[name] += duration
                times[name] += often
    steps = sum(len(ledger.begins) for ledger in generation.ledgers)
    rare = {name: spent_on for name, spent_on in took.items() if 2 * times[name] < steps}
    total = sum(rare.values())
    if total > WORTH_TELLING * spent.elapsed:
        name = max(rare, key=lambda name: rare[name])
        share = f"{100 * total / spent.elapsed:.1f} %"
        text = f"{name} ran between steps and looks like evaluation ({share}); it counts as such if its name says so."
        yield Finding("looks-like-evaluation", total, text)


def _shares(spent: Breakdown) -> Iterator[Finding]:
    """Everyday badput that is large."""
    if not spent.elapsed:
        return
    stalls = spent[Bucket.DATA_LOADING_SYNC]
    if stalls > WORTH_TELLING * spent.elapsed:
        yield Finding("data-stalls", stalls, "Training waited for data while the device had nothing to do.")
    gap = spent.detail(Bucket.OTHER).get("HOST_GAP", 0)
    if gap > WORTH_TELLING * spent.elapsed:
        text = "The device was idle while the host did something no hook explains; often a plain data generator."
        yield Finding("host-gap", gap, text)
    excess = spent.detail(Bucket.PROGRAM_STARTUP).get("FIRST_STEP", 0)
    if excess > WORTH_TELLING * spent.elapsed:
        text = "First steps took longer than the ideal, beyond the compiling that was seen."
        yield Finding("first-step-excess", excess, text)


def _checkpoints(generation: Generation, spent: Breakdown, preserved: int | None) -> Iterator[Finding]:
    failed = sum(attempt.seen.failed_commits for attempt in generation.attempts)
    if failed:
        yield Finding("failed-commits", None, f"{_count(failed, 'checkpoint')} failed in the background and are lost.")
    at_risk = None if preserved is None or generation.completed else spent.goodput - preserved
    if at_risk:
        text = "Progress since the last committed checkpoint: a crash now would lose it."
        yield Finding("unpreserved-steps", at_risk, text)


def _log(generation: Generation, spent: Breakdown) -> Iterator[Finding]:
    attempts = generation.attempts
    if any(a.seen.foreign and a.exit == "completed" for a in attempts[:-1]):
        text = "A job end was followed by a resume; such a log cannot tell a clean end, so it counts as a disruption."
        yield Finding("job-end-then-resume", None, text)
    stalled = any(ledger.attempt.seen.saw_waits for ledger in generation.ledgers if ledger.attempt.seen.foreign)
    if stalled:
        text = "Waits for data may have been overlapped with the device; this log cannot tell."
        yield Finding("data-overlap-unknown", None, text)
    excluded = spent[Bucket.EXCLUDED]
    if excluded:
        text = "Time after a stop by the user, or after a completion, is left out of the elapsed time."
        yield Finding("excluded-time", excluded, text)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
