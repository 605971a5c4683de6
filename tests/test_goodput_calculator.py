"""The calculator under the library's names: its shapes, its intervals, where it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from goodput_plugins import goodput, monitoring
from goodput_plugins.core import rundir
from goodput_plugins.core.buckets import BADPUT
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.live import journals
from goodput_plugins.goodput import BadputType, GoodputCalculator, GoodputType

CASES = Path(__file__).with_name("cases")
CASE: list[dict[str, Any]] = json.loads((CASES / "rollback.json").read_text())
NAME = "rollback"
REPORT = calculate(read_entries(CASE)[0], now=4_000_000_000_000_000_000)


class Logger:
    """A logger of the library's kind."""

    def __init__(self, entries: list[Any]) -> None:
        self.entries = entries

    def read_cloud_logging_entries(self, start_time: Any = None, end_time: Any = None) -> list[Any]:
        return self.entries


class Paged:
    """A logger of google-cloud-logging's kind: numbers arrive as floats, as in its Struct payloads."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self.asked: list[str] = []

    def list_entries(self, *, filter_: str) -> Iterator[Any]:
        from google.cloud.logging_v2.entries import StructEntry, TextEntry

        self.asked.append(filter_)
        yield TextEntry(payload="hello", timestamp=datetime.now(UTC))
        for entry in self.entries:
            payload = {k: float(v) if isinstance(v, int) else v for k, v in entry["jsonPayload"].items()}
            yield StructEntry(payload=payload, timestamp=datetime.fromisoformat(entry["timestamp"]))


def calculator(logger: Any = None, **more: Any) -> GoodputCalculator:
    return GoodputCalculator(NAME, f"goodput_{NAME}", logger or Logger(CASE), **more)


def at(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns / 1000)


def test_the_enums_have_the_librarys_values() -> None:
    assert [kind.value for kind in BadputType] == list(range(1, 15))
    assert {bucket.value for bucket in BADPUT} | {"DATA_LOADING_ASYNC"} == {kind.name for kind in BadputType}
    assert GoodputType.TOTAL.value == 1


def test_the_job_is_what_the_report_says() -> None:
    percent, badput, last_step = calculator().get_job_goodput(include_badput_breakdown=True)
    told = REPORT.to_json()
    assert percent == told["goodput_percent"] and last_step == told["steps"]["last"]
    for kind in BadputType:
        seconds = told["badput_seconds"].get(kind.name, told["overlapped_seconds"].get(kind.name))
        if kind is BadputType.CUSTOM_BADPUT_EVENTS:
            assert badput[kind] == {}
        else:
            assert badput[kind] == pytest.approx(100 * (seconds or 0.0) / told["elapsed_seconds"])


def test_payloads_that_were_taken_out_of_their_entries_give_the_same() -> None:
    bare = calculator(Logger([entry["jsonPayload"] for entry in CASE]))
    assert bare.get_job_goodput(True) == calculator().get_job_goodput(True)


def test_the_client_of_cloud_logging_can_be_handed_in() -> None:
    logger = Paged(CASE)
    asked = calculator(logger)
    assert asked.get_job_goodput(True) == calculator().get_job_goodput(True)
    assert f'jsonPayload.job_name="{NAME}"' in logger.asked[0] and 'timestamp>="1970' in logger.asked[0]
    calculator(logger, max_logs_retention_period=timedelta(days=30)).get_job_goodput()
    assert f'timestamp>="{datetime.now(UTC) - timedelta(days=30):%Y-%m-%dT}' in logger.asked[1]


def test_what_is_no_logger_is_said_so() -> None:
    with pytest.raises(TypeError, match="cloud_logger is a object"):
        calculator(object()).get_job_goodput()


def test_a_job_that_is_nowhere_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    with pytest.raises(UnusableData, match=r"no run 'rollback' below .*GOODPUT_DIR"):
        GoodputCalculator(NAME, "log").get_job_goodput()
    with pytest.raises(UnusableData, match="holds no entries of the job"):
        GoodputCalculator("another", "log", Logger(CASE)).get_job_goodput()


def test_the_run_that_the_environment_names_is_the_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = rundir.run_dir("named", tmp_path)
    folder.mkdir()
    start = 1_780_000_000_000_000_000
    header = {"schema": "goodput-journal/1", "run": "named", "attempt": "a", "start": start}
    steps = "".join(f'["s",{start + step * 10**9},0,{step}]\n' for step in range(40))
    (folder / "a.jsonl").write_text(f"{json.dumps(header)}\n{steps}")
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    monkeypatch.setenv("GOODPUT_RUN_NAME", "named")
    assert GoodputCalculator("job", "log").get_job_goodput()[2] == 39


# --- intervals ----------------------------------------------------------------------------------------


def test_adjacent_intervals_add_up_to_the_job() -> None:
    cuts = [REPORT.start + (REPORT.end - REPORT.start) * part // 7 // 1000 * 1000 for part in range(8)]
    cuts[-1] = REPORT.end
    parts = [calculator().get_job_goodput_interval(at(a), at(b)) for a, b in pairwise(cuts)]
    assert sum(part[3] for part in parts) == pytest.approx(REPORT.breakdown.elapsed / 1e9, abs=1e-5)
    assert sum(part[0] * part[3] / 100 for part in parts) == pytest.approx(REPORT.breakdown.goodput / 1e9, abs=1e-5)
    assert sum(part[4] for part in parts) == REPORT.disruptions
    steps = [part[2] for part in parts]
    assert steps[-1] == REPORT.steps.last


def test_naive_bounds_of_an_interval_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = at(REPORT.start), at(REPORT.end)
    naive = calculator().get_job_goodput_interval(low.replace(tzinfo=None), high.replace(tzinfo=None))
    assert naive == calculator().get_job_goodput_interval(low, high)


def test_an_interval_that_ends_before_it_starts_is_an_error() -> None:
    with pytest.raises(ValueError, match="before it starts"):
        calculator().get_job_goodput_interval(at(REPORT.end), at(REPORT.start))


@pytest.mark.parametrize("bound", [None, 1.0, "yesterday"])
def test_an_interval_is_two_datetimes(bound: Any) -> None:
    with pytest.raises(TypeError, match="two datetimes"):
        calculator().get_job_goodput_interval(bound, at(REPORT.end))


@pytest.mark.parametrize("ideal", [0, -1, float("nan"), "1"])
def test_an_ideal_step_time_is_a_number_of_seconds(ideal: Any) -> None:
    with pytest.raises(ValueError, match="configured_ideal_step_time"):
        calculator().get_step_deviation(ideal)


def test_a_call_reads_what_is_new_since_the_last_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    folder = rundir.run_dir("job", tmp_path)
    folder.mkdir(parents=True)
    journal, clock = folder / "0.jsonl", 1_780_000_000_000_000_000
    journal.write_text(json.dumps({"schema": SCHEMA, "run": "job", "attempt": "0", "start": clock}) + "\n")
    asked, read = GoodputCalculator("job", "log"), []
    monkeypatch.setattr(journals, "_read", lambda path, offset: read.append(offset) or path.read_bytes()[offset:])
    for step in range(3_000):
        with journal.open("ab") as file:
            file.write(encode(Event(Kind.STEP, clock + step * 100_000_000, 0, step)))
        if step % 300 == 299:
            answer = asked.get_job_goodput(include_badput_breakdown=True)
            assert answer == GoodputCalculator("job", "log").get_job_goodput(include_badput_breakdown=True)
    assert read[::2] == sorted(set(read[::2])), "each time from where the last one ended"


def test_interval_details_have_the_librarys_keys() -> None:
    details = calculator().get_interval_metric_details(at(REPORT.start), at(REPORT.end) + timedelta(seconds=1))
    assert set(details) == {kind.value for kind in goodput.IntervalMetricType}
    assert details["interval_goodput"][GoodputType.TOTAL] == pytest.approx(
        REPORT.to_json()["goodput_percent"], rel=0.01
    )
    assert details["interval_size"] == int((REPORT.end - REPORT.start) / 1e9 + 1)


# --- exclusions ---------------------------------------------------------------------------------------


def test_what_is_excluded_and_what_is_left_are_the_whole() -> None:
    third = timedelta(microseconds=(REPORT.end - REPORT.start) // 3000)
    start = at(REPORT.start)
    exclusions = [(start + third, start + 2 * third), (start + third, start + 1.5 * third)]
    percent, badput, step, excluded = calculator().get_job_goodput_with_exclusions(exclusions, True)
    first = calculator().get_job_goodput_interval(start, start + third)
    last = calculator().get_job_goodput_interval(start + 2 * third, at(REPORT.end))
    left = first[3] + last[3]
    assert excluded == pytest.approx(third.total_seconds(), abs=1e-3)
    assert percent == pytest.approx((first[0] * first[3] + last[0] * last[3]) / left, abs=1e-3)
    shares = [sum(s.values()) if isinstance(s, dict) else s for kind, s in badput.items() if "ASYNC" not in kind.name]
    assert percent + sum(shares) == pytest.approx(100)
    assert step == REPORT.steps.max_productive


def test_exclusions_never_give_more_than_all() -> None:
    start, end = at(REPORT.start), at(REPORT.end)
    for a in range(0, 10, 3):
        for b in range(a + 1, 10, 2):
            cut = [(start + (end - start) * a / 10, start + (end - start) * b / 10)]
            assert 0 <= calculator().get_job_goodput_with_exclusions(cut)[0] <= 100


def test_without_exclusions_it_is_the_job_and_with_all_excluded_there_is_no_answer() -> None:
    percent, badput, _, excluded = calculator().get_job_goodput_with_exclusions([], True)
    assert (percent, badput) == calculator().get_job_goodput(True)[:2] and excluded == 0.0
    with pytest.raises(ValueError, match="nothing of the job"):
        calculator().get_job_goodput_with_exclusions([(at(0), at(REPORT.end + 10**12))])


# --- details and the monitor --------------------------------------------------------------------------


def test_details_have_the_librarys_keys_and_are_the_reports_seconds() -> None:
    details = calculator().get_job_goodput_details()
    told = REPORT.to_json()
    assert set(details) == {kind.value for kind in goodput.MetricType}
    assert details["goodput_time"] == {GoodputType.TOTAL: told["goodput_seconds"]}
    assert details["badput_time"][BadputType.WASTED_PROGRESS_FROM_DISRUPTION] == pytest.approx(
        told["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"]
    )
    assert details["total_elapsed_time"] == told["elapsed_seconds"]
    assert details["disruption_count"] == told["disruptions"]
    assert details["ideal_step_time"] == told["steps"]["ideal_seconds"]
    assert details["max_productive_step"] == told["steps"]["max_productive"]
    off = details["step_time_deviation"]
    assert off and max(off.values()) < 60 and set(off) <= set(range(told["steps"]["last"] + 1))


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), "30", None, True])
def test_a_monitor_refuses_an_interval_that_is_none(interval: Any) -> None:
    with pytest.raises(ValueError, match="upload_interval"):
        monitoring.GoodputMonitor("job", "log", "tb", interval)


@pytest.mark.parametrize("windows", [[], [0], [3600, -5], ["day"], None, 3600])
def test_a_monitor_refuses_windows_that_are_none(windows: list[Any]) -> None:
    monitor = monitoring.GoodputMonitor("job", "log", "tb", 30)
    with pytest.raises(ValueError, match="rolling_windows_seconds"):
        monitor.start_rolling_window_goodput_uploader(windows)


def test_a_monitor_says_nothing_of_itself(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "current", lambda: None)
    off = monitoring.GoodputMonitor("job", "log", "tb", 30)
    off.start_goodput_uploader()
    off.stop_goodput_uploader()  # where it is off, nothing of the process is touched
    assert capsys.readouterr().err == ""
