"""Work that is compiled and handed over at the end of a step's call: compiling comes before it, however late."""

from __future__ import annotations

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.attribution.device import idle_pieces, on_device
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.columns import UNKNOWN

SECOND = 1_000_000_000
CALLED, UNTIL = [0, 10 * SECOND, 20 * SECOND], 30 * SECOND
COMPILING = [Piece(at * SECOND, (at + 2) * SECOND, (Bucket.PROGRAM_STARTUP, "COMPILE")) for at in (5, 25)]


def test_compiling_late_in_a_call_owns_its_time_where_work_is_deferred() -> None:
    for done in ([8 * SECOND, 12 * SECOND, 28 * SECOND], [8 * SECOND, 12 * SECOND, UNKNOWN]):
        steps = on_device(CALLED, done, COMPILING, UNTIL, deferred=True)
        assert list(steps.dispatched) == [7 * SECOND, 10 * SECOND, 27 * SECOND]
        assert idle_pieces(COMPILING, steps, UNTIL) == COMPILING


def test_elsewhere_compiling_long_after_a_call_is_beside_the_work_of_that_call() -> None:
    steps = on_device(CALLED, [8 * SECOND, 12 * SECOND, 28 * SECOND], COMPILING, UNTIL)
    assert list(steps.dispatched) == CALLED
    assert idle_pieces(COMPILING, steps, UNTIL) == []


def test_a_save_between_a_steps_beginning_and_its_work_owns_its_time_where_work_is_deferred() -> None:
    saving = Piece(21 * SECOND, 25 * SECOND, (Bucket.SAVE, None))
    steps = on_device(CALLED, [8 * SECOND, 12 * SECOND, 28 * SECOND], [saving], UNTIL, deferred=True)
    assert list(steps.dispatched) == [0, 10 * SECOND, 25 * SECOND]
    assert idle_pieces([saving], steps, UNTIL) == [saving]


def test_a_save_that_waits_for_the_work_comes_after_it() -> None:
    saving = Piece(21 * SECOND, 29 * SECOND, (Bucket.SAVE, None))
    steps = on_device(CALLED, [8 * SECOND, 12 * SECOND, 28 * SECOND], [saving], UNTIL, deferred=True)
    assert list(steps.dispatched) == CALLED
    assert idle_pieces([saving], steps, UNTIL) == [Piece(28 * SECOND, 29 * SECOND, saving.source)]
