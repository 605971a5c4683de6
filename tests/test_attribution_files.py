"""Where a loop has no step numbers, the files of its checkpoints tell them: which file is which, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from goodput_plugins.core.attribution.files import File, files_of
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

S = 1_000_000_000
T0 = 1_780_000_000 * S
SAVED = ["/c/last.pt", 7, 1000, 5_000]


def at(seconds: float) -> int:
    return T0 + round(seconds * S)


def steps(first: float, count: int) -> list[Event]:
    return [Event(Kind.STEP, at(first + 2 * i)) for i in range(count)]


def saved(when: float, holds: int | None = None, file: Any = SAVED) -> list[Event]:
    """A save that takes no time."""
    data = {"files": [file]} | ({} if holds is None else {"steps": holds})
    return [
        Event(Kind.BEGIN, at(when), activity=Activity.SAVE),
        Event(Kind.FINISH, at(when) + 1, activity=Activity.SAVE),
        Event(Kind.COMMIT, at(when) + 2, data=data),
    ]


def loaded(when: float, file: Any = SAVED) -> list[Event]:
    return [Event(Kind.SPAN, at(when), activity=Activity.RESTORE, duration=1, data={"files": [file]})]


def counted(when: float, number: int) -> list[Event]:
    return [Event(Kind.NUMBER, at(when), step=number, name="optimizer")]


def report(*lives: list[Event]) -> Report:
    """Of lives that begin 100 s apart; the last one completes."""
    log = RunLog("r")
    for number, events in enumerate(lives):
        start = at(100 * number)
        ending = [Event(Kind.END, events[-1].time + 2 * S, name="completed")] if events is lives[-1] else []
        told = sorted([Event(Kind.START, start), *events, *ending], key=lambda event: event.time)
        log.lives.append(Life(str(number), start, told))
    return calculate(log, now=T0 + 10**9 * S, ideal=2 * S)


def numbers(found: Report) -> list[tuple[int | None, int | None]]:
    return [(attempt.first_step, attempt.last_step) for attempt in found.attempts]


FIRST = [*steps(10, 6), *saved(15.5)]  # after the third of six steps


@pytest.mark.parametrize(
    ("file", "known"),
    [
        (SAVED, True),
        (["/moved/best.pt", 7, 1000, 5_000], True),
        (["/c/last.pt", 99, 1000, 5_000], True),  # the volume was mounted anew
        (["/copy/last.pt", 99, 1000, 5_000], False),
        (["/c/last.pt", 7, 1000, 6_000], False),  # written again
        (["/c/last.pt", 7, 999, 5_000], False),
        (["/c/last.pt", "7", 1000, 5_000], False),
        ("nonsense", False),
    ],
)
def test_a_file_is_known_by_size_and_time_and_by_inode_or_path(file: Any, known: bool) -> None:
    found = report(FIRST, [*loaded(101, file), *steps(110, 4)])
    assert numbers(found) == [(0, 5), (3, 6) if known else (None, None)]
    assert (Bucket.WASTED_PROGRESS in found.unknown) is not known
    if known:
        assert found.breakdown[Bucket.WASTED_PROGRESS] == 2 * 2 * S  # of the last step nothing is known (rule 6)


def test_what_a_save_says_that_it_holds_counts_not_when_it_was_made() -> None:
    early = [*steps(10, 6), *saved(15.5, holds=2)]
    assert numbers(report(early, [*loaded(101), *steps(110, 4)])) == [(0, 5), (2, 5)]
    nothing = [*saved(5, holds=0), *steps(10, 6)]
    assert numbers(report(nothing, [*loaded(101), *steps(110, 4)])) == [(0, 5), (0, 3)]


def test_the_newest_save_with_that_file_is_meant() -> None:
    twice = [*steps(10, 6), *saved(13), *saved(17, file=["/c/last.pt", 7, 1000, 9_000])]
    assert numbers(report(twice, [*loaded(101, ["/c/last.pt", 7, 1000, 9_000]), *steps(110, 2)])) == [(0, 5), (4, 5)]


def test_numbers_go_on_over_several_attempts() -> None:
    second = [*loaded(101), *steps(110, 5), *saved(115.5, file=["/c/two.pt", 8, 1000, 6_000])]
    third = [*loaded(201, ["/c/two.pt", 8, 1000, 6_000]), *steps(210, 3)]
    assert numbers(report(FIRST, second, third)) == [(0, 5), (3, 7), (6, 8)]


def test_an_optimizers_count_is_believed_where_no_file_is_known() -> None:
    assert numbers(report(FIRST, [*steps(110, 4), *counted(110.5, 4)])) == [(0, 5), (4, 7)]
    assert numbers(report([*steps(10, 6), *counted(10.5, 5_000)])) == [(5_000, 5_005)]
    assert numbers(report(FIRST, [*loaded(101), *steps(110, 4), *counted(110.5, 0)])) == [(0, 5), (3, 6)]


def test_a_process_goes_back_to_its_own_file() -> None:
    back = [*steps(10, 6), *saved(13.5), *loaded(21.5), *steps(22, 4)]
    found = report(back)
    assert numbers(found) == [(0, 5)]
    assert found.breakdown[Bucket.WASTED_PROGRESS] == 4 * 2 * S - 1  # the load took 1 ns
    assert found.disruptions == 0


def test_where_it_is_unknown_from_where_a_process_went_back_nothing_is_guessed() -> None:
    found = report(FIRST, [*steps(110, 4), *saved(113, file=["/c/x", 1, 2, 3]), *loaded(117.5, ["/c/x", 1, 2, 3]),
                           *steps(118, 2)])  # fmt: skip
    assert numbers(found)[1] == (None, None)
    assert Bucket.WASTED_PROGRESS in found.unknown


def test_a_start_after_a_completion_that_loads_its_file_goes_on() -> None:
    finished = [*FIRST, Event(Kind.END, at(30), name="completed")]
    found = report(finished, [*loaded(101), *steps(110, 4)])
    assert numbers(found) == [(0, 5), (3, 6)]
    assert found.generation == 0


@pytest.mark.parametrize(
    "data", [None, [], {"files": None}, {"files": [[]]}, {"files": [["p", 1, 2]]}, {"files": 3}, "x"]
)
def test_data_that_names_no_file_names_none(data: Any) -> None:
    assert files_of(data) == []
    assert files_of({"files": [data, SAVED]}) == [File(*SAVED)]
