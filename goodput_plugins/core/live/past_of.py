"""What attribution will need of what lies before a cut."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.attribution.ideal import ENOUGH, ideal_of
from goodput_plugins.core.attribution.judge import stuck_so_far
from goodput_plugins.core.attribution.ledger import WAIT, Ledger
from goodput_plugins.core.attribution.past import CONTEXT, Past
from goodput_plugins.core.live.blocks import add_blocks
from goodput_plugins.core.live.cuts import Cut, lasts


def past_of(
    generations: Sequence[Generation], before: Past | None, cut: Cut, attempts: int, later: frozenset[int]
) -> Past:
    """The past of the newest generation.

    Args:
        generations: attributed; the newest one's last attempt is cut.
        before: the past of the first of them, if it has one.
        cut: where.
        attempts: how many attempts of the newest one came before those here.
        later: steps from which later attempts started.

    Raises:
        Unsettled: nothing can be put aside here.
    """
    generation = generations[-1]
    own = before if len(generations) == 1 else None
    past = _within(generation, own, cut) if cut.at else _beginning(generation)
    _add_attempts(past, generations, before, own, bool(cut.at))
    _add_numbers(past, generation, own, cut)
    add_blocks(past, generation, own, cut, attempts, later)
    return past


def _beginning(generation: Generation) -> Past:
    """Of the beginning of its last attempt, what that attempt shows."""
    ledger = generation.ledgers[-1]
    seen, stride = ledger.attempt.seen, ledger.stride
    begins_with = ledger.attempt.begins_with(stride)
    return Past(seen.start, seen.start, seen.life.id, steps=0, begins_with=begins_with, stride=stride)


def _within(generation: Generation, before: Past | None, cut: Cut) -> Past:
    """Of a step of its last attempt, what that attempt shows."""
    ledger = generation.ledgers[-1]
    seen, goes_on = ledger.attempt.seen, bool(ledger.since) and before is not None
    past = Past(
        moment=ledger.begins[cut.at],
        called=cut.called,
        life=seen.life.id,
        steps=cut.told - ledger.since + (before.steps if before is not None and goes_on else 0),
        elsewhere=[
            (i.start, i.end if i.whole else None, i.activity.value, i.name, i.thread)
            for i in seen.elsewhere
            if i.start < cut.called and lasts(i.end, cut.called)
        ],
        waited=(before is not None and goes_on and before.waited) or _has_waited(ledger, cut.called),
        waits_stall=seen.waits_stall,
        deferred=seen.deferred,
        noticed=seen.noticed,
        device=ledger.device is not None,
        stuck=stuck_so_far(ledger, cut.at),
        stride=ledger.stride,
        ideal=ledger.ideal or 0,
    )
    if before is not None and goes_on:
        past.positions, past.files = dict(before.positions), list(before.files)
    _add_saves(past, ledger, cut)
    return past


def _has_waited(ledger: Ledger, moment: int) -> bool:
    starts = [*ledger.wait_starts[:1], *(piece.start for piece in ledger.pieces if piece.source == WAIT)]
    return any(start < moment for start in starts)


def _add_saves(past: Past, ledger: Ledger, cut: Cut) -> None:
    """What is known of the attempt's saves before the cut."""
    seen = ledger.attempt.seen
    placed = [(saved, at) for saved, at in ledger.attempt.saves_at if saved.start < cut.called]
    newest = seen.saves[-1:] if seen.saves and seen.saves[-1].start < cut.called else [p[0] for p in placed[-1:]]
    open_saves = [p for p in placed if not p[0].committed or p[0].label is None or p[0] in newest]
    past.saves = [(saved.start, saved.label, saved.committed, at) for saved, at in open_saves]
    past.positions |= {saved.label: at for saved, at in placed if saved.label is not None}
    past.files += [(tuple(file), at) for saved, at in placed for file in saved.files]


def _add_attempts(
    past: Past, generations: Sequence[Generation], before: Past | None, own: Past | None, goes_on: bool
) -> None:
    """What is known of the attempts that have ended, and of their saves."""
    past.samples = list(own.samples) if own is not None else []
    past.own_ideals = list(own.own_ideals) if own is not None else []
    ledgers = generations[-1].ledgers
    for ledger in ledgers if goes_on else ledgers[:-1]:
        if not ledger.since:
            sample = array("q", ledger.sample())
            past.samples.append(sample)
            past.own_ideals.append(ideal_of(sample) if len(sample) >= ENOUGH else None)
    if before is not None:
        past.earlier_positions, past.earlier_files = dict(before.earlier_positions), list(before.earlier_files)
    for ledger in [ledger for generation in generations for ledger in generation.ledgers][:-1]:
        if ledger.since and before is not None:
            past.earlier_positions |= before.positions
            past.earlier_files += before.files
        saves = ledger.attempt.saves_at
        past.earlier_positions |= {saved.label: position for saved, position in saves if saved.label is not None}
        past.earlier_files += [(tuple(file), position) for saved, position in saves for file in saved.files]


def _add_numbers(past: Past, generation: Generation, before: Past | None, cut: Cut) -> None:
    """The numbers of steps as the group of attempts counts them, those told again left out."""
    if before is not None:
        past.first, past.highest, past.distances = before.first, before.highest, Counter(before.distances)
    for attempt in generation.attempts:
        numbers = attempt.numbers or ()
        told = numbers[: max(0, cut.told - CONTEXT + 1)] if attempt is generation.attempts[-1] else numbers
        if told:
            past.first = told[0] if past.first is None else past.first
            past.highest = max(past.highest, max(told))
            past.distances.update(b - a for a, b in pairwise(told) if b > a)
