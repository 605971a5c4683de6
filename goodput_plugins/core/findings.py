"""Findings: what a reader of a report should know, in order of the seconds that it cost.

Each has a slug; ``docs/messages.md`` has its cause and cure.
"""

from __future__ import annotations

from collections.abc import Iterator

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Fact
from goodput_plugins.core.report import Breakdown, Finding
from goodput_plugins.core.story import WORST, Story

NAMED = 3
"""How many functions a finding names."""
WORTH_TELLING = 0.01
"""Everyday badput is a finding from this share of the elapsed time on."""


def findings(generation: Generation, spent: Breakdown, preserved: int | None, story: Story) -> list[Finding]:
    """All findings about a generation, dearest first.

    Args:
        generation: attributed.
        spent: where the time went, in the window that is reported.
        preserved: productive ns in preserved steps; None where no checkpoint could be seen.
        story: what happened.
    """
    found = [
        *_disruptions(generation, spent, story),
        *_steps(generation, spent, story),
        *_recompiles(story),
        *_program_cache(story),
        *_looks_like_evaluation(spent, story),
        *_faults(story),
        *_tracing(spent, story),
        *_shares(spent),
        *_checkpoints(generation, spent, preserved, story),
        *_log(spent, story),
    ]
    return in_order_of_cost(found)


def in_order_of_cost(found: list[Finding]) -> list[Finding]:
    """Dearest first; those without a price last."""
    return sorted(found, key=lambda f: (f.cost is None, -(f.cost or 0), f.id))


def _disruptions(generation: Generation, spent: Breakdown, story: Story) -> Iterator[Finding]:
    wasted = spent[Bucket.WASTED_PROGRESS]
    if wasted:
        went_back = story.often["disruption",] or story.often["restore",]
        advice = "Saving more often loses less." if went_back else "Nothing was restored: calls were made again."
        text = f"{_count(story.often['lost',], 'step')} were rolled back and done again. {advice}"
        yield Finding("wasted-progress", wasted, text)
    hang = spent.detail(Bucket.INFRASTRUCTURE_RECOVERY).get("HANG", 0)
    if hang:
        text = "The process was alive but took no step before it ended: a hang, most likely in a collective."
        yield Finding("hang", hang, text)
    gap = spent[Bucket.INFRASTRUCTURE_RECOVERY] - hang
    if gap:
        text = f"Nothing ran between attempts ({_count(story.often['disruption',], 'disruption')})."
        if story.often["disruption",] == 1 and generation.attempts[-1].crashed:
            text = "Nothing was trained after the last step of the attempt that failed; it was not started again."
        yield Finding("restart-gap", gap, text)
    if any(a.numbers is None for a in generation.attempts) and len(generation.ledgers) > 1:
        text = "Step numbers after the restart are unknown, so wasted progress is not known."
        yield Finding("unknown-step-numbers", None, text)


def _steps(generation: Generation, spent: Breakdown, story: Story) -> Iterator[Finding]:
    slow = spent.detail(Bucket.OTHER).get("SLOW_STEP", 0)
    if slow:
        stuck = story.often["stuck",]
        worst = ", ".join(str(number) for _, number in sorted(story.worst, key=lambda s: s[1]))
        among = "" if stuck <= WORST else " among them"
        text = f"{_count(stuck, 'step')} took far longer than the ideal ({worst}{among}); no hook saw why."
        yield Finding("slow-steps", slow, text)
    last = generation.ledgers[-1]
    open_step = last.slow.get(len(last.begins) - 1) if last.attempt.exit == "running" else None
    if open_step:
        text = f"The step that is running now ({last.numbers[-1]}) is overdue. Is it hanging?"
        yield Finding("stuck-now", open_step, text)
    if any(ledger.bursty for ledger in generation.ledgers):
        text = "The host runs ahead and blocks now and then, so single step times mean little; the mean is used."
        yield Finding("bursty-host", None, text)
    if story.often["unseen device",]:
        text = "The host runs ahead of the device; step times rest on how far the runtime lets it."
        yield Finding("host-step-times", None, text)


def _recompiles(story: Story) -> Iterator[Finding]:
    """Functions that were compiled again after the first step of an attempt, and at which steps."""
    took = story.named("recompiled")
    if took:
        named = ", ".join(
            f"{name} ({times} x, {ns / 1e9:.1f} s, at {_listed(story.again.get(name, []))})"
            for name, (times, ns) in [*took.items()][:NAMED]
        )
        more = f" and {_count(len(took) - NAMED, 'other')}" if len(took) > NAMED else ""
        times = sum(times for times, _ in took.values())
        text = f"{_count(times, 'compilation')} of what had been compiled: {named}{more}."
        yield Finding("recompiles", sum(ns for _, ns in took.values()), text)


def _program_cache(story: Story) -> Iterator[Finding]:
    """What the persistent cache of compiled programs was worth."""
    saved, missed = story.named(Fact.CACHE_SAVED), story.named(Fact.CACHE_MISS)
    if saved or missed:
        had = _count(sum(times for times, _ in saved.values()), "program")
        spared = sum(ns for _, ns in saved.values())
        text = f"The persistent cache had {had}"
        if spared:
            text += f", which saved {spared / 1e9:.1f} s of compiling"
        if missed:
            names = ", ".join([*missed][:NAMED]) + (", ..." if len(missed) > NAMED else "")
            text += f"; it lacked {sum(times for times, _ in missed.values()):,}: {names}"
        yield Finding("program-cache", None, text + ".")


def _looks_like_evaluation(spent: Breakdown, story: Story) -> Iterator[Finding]:
    """Functions that ran now and then between steps; one that runs at every other step belongs to them."""
    others = story.named(Fact.OTHER_WORK)
    rare = {name: ns for name, (times, ns) in others.items() if 2 * times < story.often["step",]}
    total = sum(rare.values())
    if total > WORTH_TELLING * spent.elapsed:
        name = max(rare, key=lambda name: rare[name])
        share = f"{100 * total / spent.elapsed:.1f} %"
        text = f"{name} ran between steps and looks like evaluation ({share}); it counts as such if its name says so."
        yield Finding("looks-like-evaluation", total, text)


def _faults(story: Story) -> Iterator[Finding]:
    """Plugins of ours that failed."""
    plugins = ", ".join(sorted(story.named(Fact.FAULT)))
    if plugins:
        text = f"A fault of ours switched off: {plugins}. What they would have seen after it is missing."
        yield Finding("plugin-failed", None, text)


def _tracing(spent: Breakdown, story: Story) -> Iterator[Finding]:
    """What it took to trace steps that are only run later."""
    for steps, took in story.named(Fact.TRACING).values():
        if steps and took > WORTH_TELLING * spent.elapsed:
            each = f"{took / steps / 1e6:.1f} ms a step"
            text = f"Tracing took the host {took / 1e9:.1f} s, {each}; the device may be busy meanwhile."
            yield Finding("lazy-tracing", None, text)


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


def _checkpoints(generation: Generation, spent: Breakdown, preserved: int | None, story: Story) -> Iterator[Finding]:
    failed = story.often["failed commit",]
    if failed:
        yield Finding("failed-commits", None, f"{_count(failed, 'checkpoint')} failed in the background and are lost.")
    at_risk = None if preserved is None or generation.completed else spent.goodput - preserved
    if at_risk:
        text = "Progress since the last committed checkpoint: a crash now would lose it."
        yield Finding("unpreserved-steps", at_risk, text)


def _log(spent: Breakdown, story: Story) -> Iterator[Finding]:
    if story.often["ended, then resumed",]:
        text = "A job end was followed by a resume; such a log cannot tell a clean end, so it counts as a disruption."
        yield Finding("job-end-then-resume", None, text)
    if story.often["foreign wait",] or (story.often["unseen device",] and story.often["wait",]):
        text = "Waits for data may have been overlapped with the device; what was recorded cannot tell."
        yield Finding("data-overlap-unknown", None, text)
    excluded = spent[Bucket.EXCLUDED]
    if excluded:
        text = "Time after a stop by the user, or after a completion, is left out of the elapsed time."
        yield Finding("excluded-time", excluded, text)


def _listed(steps: list[int]) -> str:
    """The first few of some steps."""
    more = ", ..." if len(steps) > NAMED else ""
    return ("step " if len(steps) == 1 else "steps ") + ", ".join(map(str, steps[:NAMED])) + more


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
