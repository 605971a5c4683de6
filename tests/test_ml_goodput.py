"""Runs of ours in the format of Google's library: exported and read again they are the same, within its limits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import simulation

from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.ml_goodput import entries
from goodput_plugins.core.orbax_payloads import checkpoint
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

HOUR = 3_600_000_000_000
SECOND = 1_000_000_000
T0 = 1_780_000_000 * SECOND
OURS_AS_CUSTOM = {"HOST_GAP": Bucket.OTHER, "PROGRAM_STARTUP": Bucket.PROGRAM_STARTUP}
"""What the format has no word for becomes a custom event of that name."""


def again(log: RunLog, now: int) -> Report:
    """The report on the run, written down in the format, through JSON, and read."""
    (read,) = read_entries(json.loads(json.dumps(list(entries(log, now=now)))))
    assert read.notes == []
    return calculate(read, now=now)


def as_the_format_has_it(report: Report) -> Counter[Any]:
    """Nanoseconds by bucket, those that the format does not keep apart put together."""
    spent = Counter({bucket: report.breakdown[bucket] for bucket in (Bucket.PRODUCTIVE, *BADPUT)})
    spent[Bucket.INFRASTRUCTURE_RECOVERY] += report.breakdown[Bucket.EXCLUDED]
    for name, bucket in OURS_AS_CUSTOM.items():
        ns = report.breakdown.detail(Bucket.CUSTOM).get(name, 0)
        spent[bucket] += ns
        spent[Bucket.CUSTOM] -= ns
    # A wait is judged anew by the ideal, and an interval with it.
    spent["steps"] = spent.pop(Bucket.PRODUCTIVE) + spent.pop(Bucket.DATA_LOADING_SYNC) + spent.pop(Bucket.OTHER)
    return spent


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("asynchronous", [False, True], ids=["host", "device"])
def test_a_played_job_is_the_same_after_export_and_reading(seed: int, asynchronous: bool) -> None:
    job = simulation.play(seed, asynchronous=asynchronous)
    log, now = simulation.journal(job), simulation.truth(job).end + HOUR
    before, after = calculate(log, now=now), again(log, now)
    allowed = max(before.breakdown.elapsed / 1000, job.plan.ideal, 2.1 * SECOND)
    told, read = as_the_format_has_it(before), as_the_format_has_it(after)
    assert {bucket: read[bucket] - told[bucket] for bucket in told} == {
        bucket: pytest.approx(0, abs=allowed) for bucket in told
    }
    assert after.breakdown.goodput == pytest.approx(before.breakdown.goodput, abs=0.02 * before.breakdown.elapsed)
    assert after.steps.last == before.steps.last
    stops = sum(attempt.exit == "user" for attempt in before.attempts)
    assert before.disruptions <= after.disruptions <= before.disruptions + len(before.attempts) - 1 + stops


def life(*events: Event, start: int = T0) -> Life:
    made = Life(f"life-{start}", start, [])
    made.add(events)
    return made


def steps(first: int, count: int, start: int, every: int = SECOND, numbered: bool = True) -> list[Event]:
    return [Event(Kind.STEP, start + at * every, 0, first + at if numbered else None) for at in range(count)]


def end(at: int, how: str = "completed") -> Event:
    return Event(Kind.END, at, name=how)


def test_each_bucket_has_its_payloads() -> None:
    def span(activity: Activity, at: int, name: str | None = None, step: int | None = None) -> Event:
        return Event(Kind.SPAN, T0 + at * SECOND, 0, step, activity, name, SECOND // 2)

    events = [
        span(Activity.DEVICE_INIT, 1),
        span(Activity.RESTORE, 3, step=9),
        *steps(10, 40, T0 + 10 * SECOND),
        span(Activity.DATA, 15),
        span(Activity.SAVE, 20, step=20),
        span(Activity.CUSTOM, 25, "eval"),
        span(Activity.SLICE_DOWN, 30),
        span(Activity.SCALE_UP, 32),
        span(Activity.REINITIALIZATION, 34),
        span(Activity.COMPILE, 36, "jit(f)"),
        end(T0 + 50 * SECOND),
    ]
    told = [entry["jsonPayload"] for entry in entries(RunLog("r", [life(*events)]), now=T0 + HOUR)]
    keys = {key for payload in told for key in payload}
    kinds = {payload.get("custom_badput_event_type") for payload in told} | {p.get("event_type") for p in told}
    assert all(payload["job_name"] == "r" for payload in told)
    assert {
        f"{prefix}_{edge}_time"
        for prefix in ("job", "tpu_init", "training_prep", "data_loading", "custom_badput_event", "elastic_wait")
        for edge in ("start", "end")
    } | {"elastic_reinit_start_time", "elastic_reinit_end_time", "step_count", "step_start_time"} <= keys
    assert kinds == {None, "EVAL", "PROGRAM_STARTUP", "save", "restore"}
    after = again(RunLog("r", [life(*events)]), T0 + HOUR).breakdown
    for bucket in (
        Bucket.TPU_INITIALIZATION,
        Bucket.RESTORE,
        Bucket.SAVE,
        Bucket.ELASTIC_SLICE_DOWN,
        Bucket.ELASTIC_SCALE_UP,
        Bucket.ELASTIC_REINITIALIZATION,
    ):
        assert after[bucket] == pytest.approx(SECOND // 2, abs=1_000), bucket
    half = pytest.approx(SECOND // 2, abs=1_000)
    assert after.detail(Bucket.CUSTOM) == {"EVAL": half, "PROGRAM_STARTUP": half}


def test_device_idle_inside_a_step_is_a_custom_event_and_what_the_host_did_is_named() -> None:
    told = [
        event
        for at, start in enumerate(range(T0 + SECOND, T0 + 40 * SECOND, SECOND))
        for event in (
            Event(Kind.STEP, start, 0, at),
            Event(Kind.IDLE, start + SECOND // 4, duration=SECOND // 2),
            Event(Kind.SPAN, start + SECOND // 4, 0, None, Activity.SAVE, None, SECOND // 8),
            Event(Kind.DEVICE, start + SECOND, step=at),
        )
    ]
    before, after = (
        calculate(RunLog("r", [life(*told, end(T0 + 40 * SECOND))]), now=T0 + HOUR).breakdown,
        again(RunLog("r", [life(*told, end(T0 + 40 * SECOND))]), T0 + HOUR).breakdown,
    )
    assert before[Bucket.OTHER] == 39 * SECOND * 3 // 8 and before[Bucket.SAVE] == 39 * SECOND // 8
    assert after.detail(Bucket.CUSTOM)["HOST_GAP"] == pytest.approx(before[Bucket.OTHER], abs=SECOND)
    assert after[Bucket.SAVE] == pytest.approx(before[Bucket.SAVE], abs=SECOND)
    assert after.goodput == pytest.approx(before.goodput, abs=SECOND)


def test_insert_ids_are_unique_and_stay_the_same() -> None:
    log = RunLog("r", [life(*steps(0, 30, T0)), life(*steps(20, 30, T0 + 100 * SECOND), start=T0 + 90 * SECOND)])
    ids = [entry["insertId"] for entry in entries(log, now=T0 + HOUR)]
    assert len(ids) == len(set(ids)) and ids == [entry["insertId"] for entry in entries(log, now=T0 + HOUR)]


def test_steps_without_numbers_are_counted_on_so_that_none_seems_repeated() -> None:
    first = life(*steps(0, 30, T0, numbered=False), end(T0 + 30 * SECOND, "exception:E"))
    second = life(*steps(0, 30, T0 + 100 * SECOND, numbered=False), start=T0 + 90 * SECOND)
    after = again(RunLog("r", [first, second]), T0 + HOUR)
    assert after.steps.last == 59 and not after.breakdown[Bucket.WASTED_PROGRESS]


def test_a_hang_lasts_to_the_last_sign_of_life() -> None:
    hung = life(*steps(0, 30, T0), Event(Kind.HEARTBEAT, T0 + 600 * SECOND))
    after = again(RunLog("r", [hung]), T0 + HOUR)
    assert after.end == pytest.approx(T0 + 600 * SECOND, abs=1_000)
    assert after.breakdown.goodput == pytest.approx(30 * SECOND, abs=1_000)


def test_the_command_prints_entries_that_the_command_reads(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    header = {"schema": "goodput-journal/1", "run": "digits", "attempt": "a", "start": T0}
    rows: list[Any] = [["s", T0 + at * SECOND, 0, at] for at in range(40)]
    rows.append(["end", T0 + 40 * SECOND, 0, None, None, "completed"])
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [header, *rows]))
    command = [sys.executable, "-m", "goodput_plugins"]
    done = subprocess.run([*command, "export", str(folder)], capture_output=True, text=True, check=True)
    exported = tmp_path / "entries.jsonl"
    exported.write_text(done.stdout)
    reports = [
        json.loads(subprocess.run([*command, "report", str(path), "--json"], capture_output=True, check=True).stdout)
        for path in (folder, exported)
    ]
    for key in ("run", "status", "goodput_seconds", "elapsed_seconds", "badput_detail", "disruptions"):
        assert reports[0][key] == reports[1][key], key


@pytest.mark.parametrize("kind", ["save", "restore"])
def test_a_checkpoint_has_every_key_that_the_librarys_calculator_reads(kind: str) -> None:
    """It adds durations up as floats, and asks the directory whether it begins with ``gs://``; none may be null."""
    payload = checkpoint(kind, 40, 1_000_000_000, 3_000_000_000)
    manager = "checkpoint_manager_blocking" if kind == "save" else "checkpoint_manager"
    checkpointer = "checkpointer_blocking" if kind == "save" else "checkpointer"
    more = ["wait_for_prev_duration_secs", "get_old_steps_duration_secs"] if kind == "save" else []
    for key in [f"{manager}_duration_secs", f"{checkpointer}_duration_secs", *more]:
        assert isinstance(payload[key], float)
    assert payload[f"{manager}_start_time"] == 1.0 and payload[f"{manager}_duration_secs"] == 2.0
    assert (payload["event_type"], payload["step"], payload["directory"]) == (kind, 40, "")
