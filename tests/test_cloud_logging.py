"""Cloud Logging through Google's own client, against a server of its protocol that enforces its limits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.logging_v2")

import grpc
from cloud import PROJECT, Cloud, fails, late, refuse

from goodput_plugins import goodput
from goodput_plugins.cli import main
from goodput_plugins.core import rundir
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.exporters import fetch, google_cloud
from goodput_plugins.exporters.cloud_logging import Writer, log_name, logger_of
from goodput_plugins.exporters.errors import Unavailable, Unreached
from goodput_plugins.exporters.fetch import Pace

LOGGER = "goodput_rollback"
CASE: list[dict[str, Any]] = json.loads((Path(__file__).with_name("cases") / "rollback.json").read_text())


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as server:
        yield server


@pytest.fixture
def writer(cloud: Cloud) -> Iterator[Writer]:
    made = Writer(PROJECT, LOGGER, cloud.environ)
    yield made
    made.close()


def entry(number: int, size: int = 10, at: datetime | None = None) -> dict[str, Any]:
    moment = datetime.now(UTC) if at is None else at
    return {
        "insertId": f"id-{number}",
        "severity": "INFO",
        "timestamp": moment.isoformat(),
        "jsonPayload": {"job_name": "rollback", "text": "x" * size},
    }


# --- writing -----------------------------------------------------------------------------------------


def test_entries_are_written_in_requests_as_large_as_it_takes(cloud: Cloud, writer: Writer) -> None:
    assert writer.write([entry(at) for at in range(2_000)]) == 0
    assert cloud.requests == [900, 900, 200]
    assert writer.write([entry(at, 200_000) for at in range(100, 160)]) == 0
    assert sum(cloud.requests[3:]) == 60 and len(cloud.requests) - 3 >= 3
    assert {one["logName"] for one in cloud.entries()} == {log_name(PROJECT, LOGGER)}


def test_what_is_written_twice_is_seen_once(cloud: Cloud, writer: Writer) -> None:
    entries = [entry(at) for at in range(5)]
    writer.write(entries)
    writer.write(entries)
    assert len(cloud.written) == 10 and len(cloud.entries()) == 5


def test_an_entry_that_is_too_large_is_dropped_and_counted(cloud: Cloud, writer: Writer) -> None:
    assert writer.write([entry(0), entry(1, 300_000), entry(2)]) == 1
    assert len(cloud.entries()) == 2


def test_entries_that_the_server_refuses_are_counted_and_the_others_written(cloud: Cloud, writer: Writer) -> None:
    def refuse_one(request: Any, context: grpc.ServicerContext) -> None:
        cloud.take(request, {1})
        refuse(context, {1: "bad"})

    cloud.faults.append(refuse_one)
    assert writer.write([entry(at) for at in range(4)]) == 1
    assert [one["insertId"] for one in cloud.entries()] == ["id-0", "id-2", "id-3"]


def test_a_request_that_is_refused_without_a_word_of_which_is_searched_for_it(cloud: Cloud, writer: Writer) -> None:
    def refuse_all(request: Any, context: grpc.ServicerContext) -> None:
        if any(one.insert_id == "id-5" for one in request.entries):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "one of them is bad")

    cloud.always = refuse_all
    assert writer.write([entry(at) for at in range(8)]) == 1
    assert len(cloud.entries()) == 7


def test_entries_that_were_refused_for_a_while_are_written_again(cloud: Cloud, writer: Writer) -> None:
    def busy(request: Any, context: grpc.ServicerContext) -> None:
        cloud.take(request, {0})
        refuse(context, {0: "no permission yet"}, code=7)

    cloud.faults.append(busy)
    entries = [entry(at) for at in range(3)]
    with pytest.raises(Unreached):
        writer.write(entries)
    assert writer.write(entries) == 0
    assert len(cloud.entries()) == 3


@pytest.mark.parametrize(
    ("code", "slow", "quota"),
    [
        (grpc.StatusCode.UNAVAILABLE, False, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, False, True),
        (grpc.StatusCode.INTERNAL, False, False),
        (grpc.StatusCode.PERMISSION_DENIED, True, False),
        (grpc.StatusCode.UNAUTHENTICATED, True, False),
        (grpc.StatusCode.NOT_FOUND, True, False),
    ],
)
def test_what_is_worth_another_try_says_so(
    cloud: Cloud, writer: Writer, code: grpc.StatusCode, slow: bool, quota: bool
) -> None:
    cloud.faults.append(fails(code))
    with pytest.raises(Unreached) as error:
        writer.write([entry(0)])
    assert (error.value.slow, error.value.quota) == (slow, quota)
    assert writer.write([entry(0)]) == 0


def test_a_late_answer_and_a_server_that_is_away_are_no_end(cloud: Cloud, writer: Writer) -> None:
    cloud.faults.append(late(2.0))
    with pytest.raises(Unreached):
        writer.write([entry(0)], 0.3)
    cloud.go_down()
    with pytest.raises(Unreached):
        writer.write([entry(0)])
    cloud.come_back()
    for _ in range(50):
        try:
            assert writer.write([entry(0)]) == 0
            break
        except Unreached:
            time.sleep(0.2)
    assert len(cloud.entries()) == 1


def test_times_beyond_what_a_log_shows_are_moved_to_where_it_does(cloud: Cloud, writer: Writer) -> None:
    now = datetime.now(UTC)
    writer.write([entry(0, at=now - timedelta(days=90)), entry(1, at=now + timedelta(days=3)), entry(2, at=now)])
    assert len(cloud.entries()) == 3


# --- where to, and with what -------------------------------------------------------------------------


def test_the_project_is_what_the_environment_says() -> None:
    assert google_cloud.project({"GOODPUT_PROJECT": "p", "GOOGLE_CLOUD_PROJECT": "q"}) == "p"
    assert google_cloud.project({"GOOGLE_CLOUD_PROJECT": "q"}) == "q"


def test_a_log_has_a_name_that_cloud_logging_takes() -> None:
    assert logger_of("run 1/é", {}) == "goodput_run_1__"
    assert logger_of("r", {"GOODPUT_LOGGER": "mine/x"}) == "mine/x"
    assert log_name("p", "mine/x") == "projects/p/logs/mine%2Fx"


def test_without_a_project_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    import google.auth

    monkeypatch.setattr(google.auth, "default", lambda: (None, None))
    with pytest.raises(Unavailable, match="set GOODPUT_PROJECT"):
        google_cloud.project({})


# --- reading -----------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cloud: Cloud) -> Path:
    """A machine that sees nothing of the run but its log."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path / "runs"))
    for name, value in cloud.environ.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def recent() -> list[dict[str, Any]]:
    """The entries of a case, their payloads' times as they are, written just now."""
    now = datetime.now(UTC)
    return [
        {**one, "insertId": f"id-{at}", "severity": "INFO", "timestamp": (now + timedelta(microseconds=at)).isoformat()}
        for at, one in enumerate(CASE)
    ]


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["report", *words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_run_is_read_from_its_log(
    cloud: Cloud, writer: Writer, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.write(recent())
    exported = here / "entries.json"
    exported.write_text(json.dumps(CASE))
    expected = report(capsys, str(exported))
    assert report(capsys, "rollback", "--project", PROJECT) == expected
    assert report(capsys, "rollback", "--logger", LOGGER) == expected
    calculator = goodput.GoodputCalculator("rollback", LOGGER)
    assert calculator.get_job_goodput()[0] == expected["goodput_percent"]
    assert calculator.get_job_goodput(True) == calculator.get_job_goodput(True)
    days = goodput.GoodputCalculator("rollback", LOGGER, max_logs_retention_period=timedelta(days=2))
    assert days.get_job_goodput()[0] == expected["goodput_percent"]


def test_a_local_folder_comes_before_the_log(cloud: Cloud, here: Path) -> None:
    folder = rundir.run_dir("rollback", here / "runs")
    folder.mkdir(parents=True)
    start = 1_780_000_000_000_000_000
    header = {"schema": "goodput-journal/1", "run": "rollback", "attempt": "a", "start": start}
    (folder / "a.jsonl").write_text(json.dumps(header) + f'\n["s",{start + 1},0,7]\n')
    assert goodput.GoodputCalculator("rollback", LOGGER).get_job_goodput()[2] == 7
    assert cloud.reads == []


def test_only_what_is_new_is_read_again(cloud: Cloud, writer: Writer, here: Path) -> None:
    def count() -> int:
        return len(fetch.fetch("rollback", PROJECT, LOGGER).read_text().splitlines())

    real = cloud.now
    writer.write([entry(at) for at in range(2_500)])
    cloud.now = lambda: real() + 600
    writer.write([entry(at) for at in range(2_500, 2_510)])
    assert count() == 2_510 and len(cloud.reads) == 3
    cloud.now = lambda: real() + 1200
    writer.write([entry(at) for at in range(2_510, 2_520)])
    assert count() == 2_520 and len(cloud.reads) == 4
    assert count() == 2_520


def test_an_interrupted_reading_goes_on_where_it_was(cloud: Cloud, writer: Writer, here: Path) -> None:
    writer.write([entry(at) for at in range(3_500)])

    def interrupted(reading: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("rollback", PROJECT, LOGGER, progress=interrupted)
    path = fetch.fetch("rollback", PROJECT, LOGGER)
    assert len(cloud.reads) == 4
    names = [json.loads(line)["insertId"] for line in path.read_text().splitlines()]
    assert len(names) == len(set(names)) == 3_500


def test_a_place_in_the_list_that_is_no_more_begins_the_list_again(cloud: Cloud, writer: Writer, here: Path) -> None:
    writer.write([entry(at) for at in range(2_500)])

    def interrupted(reading: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("rollback", PROJECT, LOGGER, progress=interrupted)
    cloud.faults.append(fails(grpc.StatusCode.INVALID_ARGUMENT, "page_token has expired"))
    path = fetch.fetch("rollback", PROJECT, LOGGER)
    assert len({json.loads(line)["insertId"] for line in path.read_text().splitlines()}) == 2_500
    assert len(path.read_text().splitlines()) == 2_500


def test_reading_keeps_to_the_quota_and_waits_where_others_used_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], []

    class Pages:
        def next_page(self) -> bool:
            asked.append(now[0])
            if len(asked) == 5:
                raise Unreached("429", quota=True)
            return len(asked) < 300

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = Pace(clock=lambda: now[0], sleep=sleep)
    while pace.page(Pages()):  # type: ignore[arg-type]
        now[0] += 0.1
    assert max(sum(begin <= at < begin + 60 for at in asked) for begin in asked) <= 60
    assert now[0] < 60 * 300 / 50 + 60


def test_429_and_outages_while_reading_are_waited_out(
    cloud: Cloud, writer: Writer, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "SHORTEST_PAUSE", 0.01)
    writer.write([entry(at) for at in range(10)])
    for code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
        cloud.faults.append(fails(code))
    assert len(fetch.fetch("rollback", PROJECT, LOGGER).read_text().splitlines()) == 10


def test_a_log_that_cannot_be_read_is_one_sentence(
    cloud: Cloud, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "rollback", "--project", PROJECT]) == 1
    assert "holds no entries of the run 'rollback'" in capsys.readouterr().err
    cloud.faults.append(fails(grpc.StatusCode.PERMISSION_DENIED, "logging.logEntries.list is missing"))
    assert main(["report", "rollback", "--project", PROJECT]) == 1
    assert "logging.logEntries.list is missing" in capsys.readouterr().err
    with pytest.raises(UnusableData):
        fetch.fetch("rollback", "another-project", LOGGER)
    assert main(["report", "--project", PROJECT]) == 2
