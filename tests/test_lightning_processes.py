"""Whole processes of Lightning under the switch: killed and resumed, ended in every way, on two ranks, spawned."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import Runner

from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.reading import read_journal
from goodput_plugins.core.runlog import Steps

pytest.importorskip("pytorch_lightning")

SCRIPTS = Path(__file__).parent / "scripts"
NS = 1_000_000_000
KILL_AT, OUTAGE = 31, 1.0

pytestmark = pytest.mark.timeout(400)


def environment(place: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")}
    return clean | {"GOODPUT_PLUGINS": "auto", "GOODPUT_DIR": str(place), "PYTHONWARNINGS": "ignore"} | more


def report_of(place: Path) -> dict[str, Any]:
    in_a_minute = f"{time.time() + 60:.0f}"  # until then a process that was killed passes for alive
    (run,) = place.iterdir()
    command = [sys.executable, "-m", "goodput_plugins", "report", str(run), "--json", "--as-of", in_a_minute]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def events_in(place: Path) -> list[Event]:
    """The events of the one journal there."""
    (journal,) = place.rglob("*.jsonl")
    return events_of(journal)


def events_of(journal: Path) -> list[Event]:
    """The events of a journal, the steps of a run among them."""
    events: list[Event] = []
    for event in read_journal(journal, journal.read_bytes()).events:
        steps = Steps()
        if event.kind is Kind.RUN and steps.add(event):
            numbered = zip(steps.times, steps.numbers, strict=True)
            events += [Event(Kind.STEP, at, event.thread, number) for at, number in numbered]
        else:
            events.append(event)
    return events


# --- a script that times itself, killed and resumed ------------------------------------------------------------------


@dataclass
class Life:
    """What one life of the script timed: ``[name, step, start, end]`` each."""

    start: int
    stretches: list[tuple[str, int | None, int, int]]

    @property
    def end(self) -> int:
        return self.stretches[-1][3]

    def total(self, *names: str) -> int:
        return sum(end - start for name, _, start, end in self.stretches if name in names)

    def work(self) -> dict[int, int]:
        """What each step worked; the first counts as a usual one."""
        steps: dict[int, int] = {}
        for name, step, start, end in self.stretches:
            if name == "work" and step is not None:
                steps[step] = steps.get(step, 0) + end - start
        usual = round(statistics.median(steps.values()))
        return steps | {min(steps): usual}


@dataclass
class Story:
    killed: Life
    completed: Life
    report: dict[str, Any]

    @property
    def lives(self) -> tuple[Life, Life]:
        return self.killed, self.completed

    @property
    def resumed_at(self) -> int:
        """The first step of the second life."""
        return min(self.completed.work())

    def truth(self) -> dict[str, int]:
        kept = sum(worked for step, worked in self.killed.work().items() if step < self.resumed_at)
        return {
            "PRODUCTIVE": kept + sum(self.completed.work().values()),
            "WASTED_PROGRESS_FROM_DISRUPTION": sum(self.killed.work().values()) - kept,
            "DATA_LOADING_SYNC": sum(life.total("data", "validation-data") for life in self.lives),
            "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME": sum(life.total("save") for life in self.lives),
            "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME": self.completed.total("restore"),
            "CUSTOM_BADPUT_EVENTS": sum(
                life.total("validation") - life.total("validation-data") for life in self.lives
            ),
            "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION": self.completed.start - self.killed.end,
        }

    def figure(self, bucket: str) -> int:
        spent = {"PRODUCTIVE": self.report["goodput_seconds"]} | self.report["badput_seconds"]
        value = spent[bucket]
        return round((sum(value.values()) if isinstance(value, dict) else value) * NS)


def live(place: Path, times: Path, *, kill_at: str = "never") -> Life:
    """Run the script to its end, or kill it as soon as it has told of that step."""
    command = [sys.executable, str(SCRIPTS / "timed_lightning.py"), str(place / "checkpoints"), str(times)]
    variables = environment(place / "goodput", GOODPUT_RUN_NAME="timed")
    start = time.time_ns()
    with subprocess.Popen(
        command, cwd=place, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == kill_at:
                process.kill()
                break
        process.wait()
    assert process.returncode == (0 if kill_at == "never" else -signal.SIGKILL)
    return Life(start, [tuple(json.loads(line)) for line in times.read_text().splitlines()])


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("story")
    killed = live(place, place / "first", kill_at=str(KILL_AT))
    time.sleep(OUTAGE)
    completed = live(place, place / "second")
    return Story(killed, completed, report_of(place / "goodput"))


BUCKETS = (
    "PRODUCTIVE",
    "WASTED_PROGRESS_FROM_DISRUPTION",
    "DATA_LOADING_SYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "CUSTOM_BADPUT_EVENTS",
    "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
)


@pytest.mark.parametrize("bucket", BUCKETS)
def test_each_bucket_is_what_the_script_timed(story: Story, bucket: str) -> None:
    truth = story.truth()[bucket]
    assert truth > NS // 5
    assert abs(story.figure(bucket) - truth) <= max(0.02 * truth, NS // 10)


def test_pl_16285_a_killed_process_loses_nothing_that_was_recorded_and_its_tail_is_a_disruption(story: Story) -> None:
    report = story.report
    first, second = report["attempts"]
    assert (report["status"], report["disruptions"]) == ("completed", 1)
    assert first["exit"] == "lost" and first["first_step"] == 0 and first["last_step"] in (KILL_AT, KILL_AT + 1)
    assert (second["exit"], second["first_step"], second["last_step"]) == ("completed", story.resumed_at, 47)
    assert story.resumed_at == 24
    assert (report["steps"]["count"], report["steps"]["max_productive"]) == (48, 47)


def test_the_buckets_sum_to_the_elapsed_time_exactly(story: Story) -> None:
    report = story.report
    spent = [report["goodput_seconds"]]
    for value in report["badput_seconds"].values():
        spent.extend(value.values() if isinstance(value, dict) else [value or 0.0])
    assert sum(round(seconds * NS) for seconds in spent) == round(report["elapsed_seconds"] * NS)


# --- endings ---------------------------------------------------------------------------------------------------------

ENDINGS = {
    "interrupt": (1, "user", "stopped"),
    "SIGTERM": (0, "signal:SIGTERM", "failed"),
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, Path]]:
    """Each ending's exit code and its runs; all are run at once."""
    running = {}
    for how in ENDINGS:
        place = tmp_path_factory.mktemp(how)
        command = [sys.executable, str(SCRIPTS / "lightning_ending.py"), how]
        log = (place / "stderr").open("w")
        process = subprocess.Popen(command, cwd=place, env=environment(place / "goodput"), stderr=log, stdout=log)
        running[how] = process, place
    return {how: (process.wait(300), place) for how, (process, place) in running.items()}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_process_ends_as_it_would_have_and_the_report_says_how(
    endings: dict[str, tuple[int, Path]], how: str
) -> None:
    code, exit, status = ENDINGS[how]
    assert endings[how][0] == code, (endings[how][1] / "stderr").read_text()
    report = report_of(endings[how][1] / "goodput")
    (attempt,) = report["attempts"]
    assert (attempt["exit"], report["status"]) == (exit, status)
    assert (attempt["first_step"], attempt["last_step"]) == (0, 4)
    assert "goodput: " not in (endings[how][1] / "stderr").read_text()


def test_a_sigterm_is_a_notice_and_the_way_out_after_it_is_known(endings: dict[str, tuple[int, Path]]) -> None:
    events = events_in(endings["SIGTERM"][1] / "goodput")
    (notice,) = [event for event in events if event.kind is Kind.NOTICE]
    assert notice.name == "SIGTERM"
    assert events[-1].kind is Kind.END
    assert 0.3 <= (events[-1].time - notice.time) / NS < 5


# --- several processes -----------------------------------------------------------------------------------------------

SEVERAL = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import pytorch_lightning as pl
from trainees import *

class Learner(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network()
    def training_step(self, batch, batch_idx):
        time.sleep(0.01)
        return 1e-6 * self.network(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)

if __name__ == "__main__":
    from goodput_plugins.lightning import GoodputCallback
    mine = [GoodputCallback()] if "hand" in sys.argv[2] else []
    fits = trainer(pl, ".", devices=2, strategy=sys.argv[1], max_epochs=2, callbacks=mine)
    fits.fit(Learner(), loader(10))
    assert "lightning.pytorch" not in sys.modules
"""


@pytest.mark.parametrize(
    ("strategy", "way", "kept"), [("ddp", "switch and hand", "primary"), ("ddp_spawn", "hand", "all")]
)
def test_the_first_rank_is_the_primary_process(run: Runner, strategy: str, way: str, kept: str) -> None:
    switch = {"GOODPUT_PLUGINS": "auto"} if "switch" in way else {}
    variables = run.environ(GOODPUT_PROCESSES=kept, PYTHONWARNINGS="ignore", **switch)
    command = [*run.command(SEVERAL), strategy, way]
    done = subprocess.run(
        command, env=variables, cwd=run.folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "goodput: " not in done.stderr
    ranks = {path.stem.rpartition("-")[2]: path for path in run.runs.rglob("*.jsonl")}
    assert set(ranks) == ({"p0"} if kept == "primary" else {"p0", "p1"})
    events = events_of(ranks["p0"])
    assert [event.step for event in events if event.kind is Kind.STEP] == list(range(10))
    assert {(event.step, event.data) for event in events if event.kind is Kind.RANK} >= {(0, 2)}
    assert any(event.activity is Activity.DEVICE_INIT for event in events)
    assert any(event.activity is Activity.DATA for event in events)
    assert (events[-1].kind, events[-1].name) == (Kind.END, "completed")
