"""Logs that name no process."""

from __future__ import annotations

from typing import Any

import pytest
from few_events import (
    CUSTOM,
    GOOD,
    INIT,
    PREP,
    RECOVERY,
    SAVE,
    WASTED,
    Answer,
    all_logged,
    at,
    entries,
    foreign,
    is_,
    report,
    spent,
    timeline,
)

from goodput_plugins.core.foreign import read_entries

# --- Foreign logs -----------------------------------------------------------------------------------------------------


def test_a_copy_of_a_start_by_another_process_is_ignored_with_a_finding() -> None:
    def both(payload: dict[str, Any]) -> list[dict[str, Any]]:
        return [payload, {k: v + 0.1 if k.endswith("_time") else v for k, v in payload.items()}]

    one = [{"job_start_time": 0.0}, {"tpu_init_start_time": 1.0}, {"tpu_init_end_time": 3.0}, *all_logged(10.0, 5)]
    two = [copy for payload in one for copy in both(payload)]
    single, double = foreign(*one, ("job_end_time", 20)), foreign(*two, ("job_end_time", 20))
    assert spent(double)[GOOD] == spent(single)[GOOD] == 10
    assert report(double).disruptions == 0
    assert report(double).findings


def test_an_init_that_follows_a_step_begins_an_attempt_though_its_job_start_was_lost() -> None:
    for late in ([], [("job_start_time", 50.5)]):
        found = foreign(
            ("job_start_time", 0), *all_logged(10, 3), ("tpu_init_start_time", 50), *late, ("tpu_init_end_time", 54),
            *all_logged(55, 3, number=1), ("job_end_time", 61),
        )  # fmt: skip
        assert report(found).disruptions == 1
        is_(spent(found), {PREP: 10 + 1, GOOD: 2 + 6, WASTED: 2, RECOVERY: 36, INIT: 4})


SAVE_PAYLOAD = {
    "event_type": "save",
    "step": 1,
    "checkpoint_manager_blocking_start_time": 13,
    "checkpoint_manager_blocking_duration_secs": 1.0,
    "checkpointer_blocking_start_time": 13,
    "checkpointer_blocking_duration_secs": 0.5,
}


def with_save(**changed: Any) -> Answer:
    before, after = all_logged(10, 2), all_logged(15, 3, number=2)
    return spent(foreign(("job_start_time", 0), *before, SAVE_PAYLOAD | changed, *after, ("job_end_time", 21)))


def test_a_save_lasts_what_the_checkpoint_manager_says_else_what_the_checkpointer_says() -> None:
    assert with_save()[SAVE] == 1
    nulls: dict[str, Any] = {"checkpoint_manager_blocking_start_time": None}
    nulls["checkpoint_manager_blocking_duration_secs"] = None
    assert with_save(**nulls)[SAVE] == 0.5
    nulls |= {"checkpointer_blocking_start_time": None, "checkpointer_blocking_duration_secs": None}
    assert SAVE not in with_save(**nulls)


def test_with_as_of_a_foreign_log_is_alive_for_a_while_and_its_tail_is_the_open_activitys() -> None:
    evaluating = {"custom_badput_event_type": "eval", "custom_badput_event_start_time": 17}
    found = foreign(("job_start_time", 0), *all_logged(10, 3), evaluating)
    is_(spent(found, as_of=70), {PREP: 10, GOOD: 7, CUSTOM: 53, (CUSTOM, "EVAL"): 53})
    assert report(found, as_of=at(70)).status == "running"
    assert spent(found, as_of=200)[RECOVERY] >= 180
    assert report(found, as_of=at(200)).status == "lost"


def test_without_as_of_a_foreign_log_ends_at_its_last_entry() -> None:
    assert report(foreign(("job_start_time", 0), *all_logged(10, 3))).end == at(14)


def test_as_of_a_moment_only_entries_up_to_then_count() -> None:
    whole = foreign(("job_start_time", 0), *all_logged(10, 30), ("job_end_time", 70))
    is_(spent(whole, as_of=21), {PREP: 10, GOOD: 11})


@pytest.mark.parametrize("back", [5, 3600])
def test_a_clock_that_steps_back_loses_no_more_than_that_stretch(back: float) -> None:
    before, after = all_logged(10, 30), all_logged(70 - back, 30, number=30)
    written = entries(("job_start_time", 0), *before, *after, ("job_end_time", 130 - back))
    for number, entry in enumerate(written):
        entry["timestamp"] = f"2026-05-28T20:{27 + number // 60:02}:{number % 60:02}Z"
    (found,) = read_entries(written)
    answer = spent(found)
    assert answer[GOOD] == pytest.approx(29 * 2 + 30 * 2, abs=2)
    assert WASTED not in answer
    assert report(found).disruptions == 0
    assert len(timeline(found)) == 1
