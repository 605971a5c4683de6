"""A process that restores a checkpoint of its own goes back to the step that the checkpoint's label stands for."""

from __future__ import annotations

import pytest

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

S = 1_000_000_000
T0 = 1_780_000_000 * S


def at(seconds: float) -> int:
    return T0 + round(seconds * S)


def steps(first: float, count: int, number: int | None = None) -> list[Event]:
    return [
        Event(Kind.STEP, at(first + 2 * i), step=None if number is None else number + i if i == 0 else None)
        for i in range(count)
    ]


def saved(when: float, label: int) -> list[Event]:
    """A save that takes no time."""
    return [
        Event(Kind.BEGIN, at(when), step=label, activity=Activity.SAVE),
        Event(Kind.FINISH, at(when) + 1, step=label, activity=Activity.SAVE),
        Event(Kind.COMMIT, at(when) + 2, step=label),
    ]


def restored(when: float, label: int) -> list[Event]:
    return [Event(Kind.SPAN, at(when), step=label, activity=Activity.RESTORE, duration=1)]


def report(*lives: list[Event]) -> Report:
    """Of lives that begin 100 s apart; the last one completes."""
    log = RunLog("r")
    for number, events in enumerate(lives):
        start = at(100 * number)
        last = max(event.time for event in events)
        ending = [Event(Kind.END, last + 2 * S, name="completed")] if events is lives[-1] else []
        told = sorted([Event(Kind.START, start), *events, *ending], key=lambda event: event.time)
        log.lives.append(Life(str(number), start, told))
    return calculate(log, now=T0 + 10**9 * S, ideal=2 * S)


def numbers(found: Report) -> list[tuple[int | None, int | None]]:
    return [(attempt.first_step, attempt.last_step) for attempt in found.attempts]


# Six steps; the third is the last in the checkpoint; then back to it, and four more.


@pytest.mark.parametrize("label", [2, 3])  # the last step in it; how many steps it holds
def test_it_goes_on_behind_the_last_step_that_the_checkpoint_holds(label: int) -> None:
    found = report([*steps(10, 6), *saved(15.5, label), *restored(21.5, label), *steps(22, 4)])
    assert numbers(found) == [(0, 6)]
    assert found.breakdown[Bucket.WASTED_PROGRESS] == pytest.approx(3 * 2 * S, abs=10)
    assert found.disruptions == 0


def test_no_step_has_a_number_below_the_first() -> None:
    """Steps that nothing numbers, then a restore of a checkpoint from elsewhere."""
    assert numbers(report([*steps(10, 30), *restored(69.5, 10), *steps(70, 4)])) == [(0, 14)]
    assert numbers(report([*steps(10, 4), *steps(18, 4, 0)])) == [(0, 3)]  # what came before its first was none


def test_labels_that_follow_say_whether_it_went_back() -> None:
    """A checkpoint that was only looked at: the saves after it count on."""
    looked_at = [*steps(10, 6), *saved(15.5, 2), *restored(21.5, 2), *steps(22, 4), *saved(29, 9)]
    found = report(looked_at)
    assert numbers(found) == [(0, 9)]
    assert found.breakdown[Bucket.WASTED_PROGRESS] == 0
    went_back = [*steps(10, 6), *saved(15.5, 2), *restored(21.5, 2), *steps(22, 4), *saved(29, 6)]
    assert numbers(report(went_back)) == [(0, 6)]


def test_a_step_that_says_its_number_is_believed() -> None:
    found = report([*steps(10, 6, 0), *saved(15.5, 2), *restored(21.5, 2), *steps(22, 4, 6)])
    assert numbers(found) == [(0, 9)]
    assert found.breakdown[Bucket.WASTED_PROGRESS] == 0


def test_it_may_go_back_twice_and_after_a_restart() -> None:
    first = [*steps(10, 6), *saved(15.5, 2), *restored(21.5, 2), *steps(22, 2), *restored(25.5, 2), *steps(26, 5)]
    second = [*restored(101, 7), *steps(110, 3), *saved(115.5, 10), *restored(115.7, 7), *steps(116, 2)]
    found = report([*first, *saved(35.9, 7)], second)
    assert numbers(found) == [(0, 7), (8, 9)]
    lost = 3 + 2  # steps 3 to 5, then 3 and 4
    assert found.breakdown[Bucket.WASTED_PROGRESS] >= lost * 2 * S


def test_a_restore_at_the_end_takes_nothing_back() -> None:
    found = report([*steps(10, 6), *saved(15.5, 2), *restored(21.5, 2)])
    assert numbers(found) == [(0, 5)]
    assert found.breakdown[Bucket.WASTED_PROGRESS] == 0
