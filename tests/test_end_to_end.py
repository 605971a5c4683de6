"""A script that times itself is killed and restarted under the switch; the report must say what the script says.

The truth is made of the stretches that ``scripts/timed_digits.py`` timed, of the moments at which
this test started and killed it, and of DESIGN's rules for what a stretch is worth. ``OTHER`` is compared
as a whole: the way out, and the little time between steps that no hook explains.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
EXAMPLE = Path(__file__).parent.parent / "examples" / "digits.py"
KILL_AT = 67
OUTAGE = 2.0
NS = 1_000_000_000


def without_ours(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")} | more


def report_of(path: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "goodput_plugins", "report", str(path), "--json", *options]
    done = subprocess.run(command, env=without_ours(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def only_run_in(path: Path) -> Path:
    (run,) = path.iterdir()
    return run


def usual(lengths: list[int]) -> int:
    """The mean of what is not above the median + 3 x the median absolute deviation: DESIGN's ideal."""
    middle = statistics.median(lengths)
    spread = statistics.median(abs(length - middle) for length in lengths)
    return round(statistics.mean(length for length in lengths if length <= middle + 3 * spread))


# --- what the script timed -------------------------------------------------------------------------------------------


@dataclass
class Stretch:
    name: str
    step: int | None
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass
class TimedLife:
    """One life of the script: when this test started it, when it was dead, and what it timed in between."""

    start: int
    dead: int
    stretches: list[Stretch]

    @property
    def end(self) -> int:
        """The script's own last sign of life: for one that completed, its last exit function."""
        return self.stretches[-1].end

    def all(self, name: str) -> list[Stretch]:
        return [stretch for stretch in self.stretches if stretch.name == name]

    def total(self, *names: str) -> int:
        return sum(stretch.length for name in names for stretch in self.all(name))

    @property
    def judged(self) -> list[int]:
        """The lengths of the steps that tell what is usual: not the first, not the last."""
        return [stretch.length for stretch in self.all("step")[1:-1]]

    @property
    def ideal(self) -> int:
        """A usual step, in ns."""
        return usual(self.judged)

    @property
    def compilation(self) -> int:
        """What the first call of a jitted function took above a usual one."""
        first_step, first_eval = self.all("step")[0].length, self.all("eval-call")[0].length
        usual_eval = round(statistics.median(stretch.length for stretch in self.all("eval-call")))
        creation = self.total("compile-and-run") - self.total("run")
        return creation + first_step - self.ideal + first_eval - usual_eval

    @property
    def evaluation(self) -> int:
        """From the first call of each evaluation to the end of its last, less the compiling in it."""
        total = 0
        for evaluation in self.all("eval"):
            calls = [call for call in self.all("eval-call") if evaluation.start <= call.start < evaluation.end]
            total += calls[-1].end - calls[0].start
        usual = round(statistics.median(stretch.length for stretch in self.all("eval-call")))
        return total - (self.all("eval-call")[0].length - usual)

    @property
    def preparation(self) -> int:
        """From process start to the first batch, less what is something else."""
        first_batch = self.all("data")[0].start
        creation = self.total("compile-and-run") - self.total("run")
        return first_batch - self.start - self.total("device-init", "restore") - creation

    def steps(self, *, first: int, last: int) -> int:
        """The productive time of these steps: the first is worth a usual step, a stuck one too."""
        mine = [stretch for stretch in self.all("step") if first <= stretch.step <= last]
        return sum(
            self.ideal if stretch is self.all("step")[0] or self.is_stuck(stretch) else stretch.length
            for stretch in mine
        )

    def is_stuck(self, step: Stretch) -> bool:
        """DESIGN rule 7; a shared machine makes such steps now and then."""
        return step.length - self.ideal > max(2 * self.ideal, NS // 10)


@dataclass
class Story:
    """Both lives of the script and the report about them."""

    killed: TimedLife
    completed: TimedLife
    report: dict[str, Any]

    @property
    def resumed_from(self) -> int:
        """The checkpoint that was committed when the first life was killed, as the second found it."""
        return self.completed.all("restore")[0].step

    @property
    def elapsed(self) -> int:
        return self.completed.end - self.killed.start

    def truth(self) -> dict[str, int]:
        lives = (self.killed, self.completed)
        last = 10**9
        truth = {
            "PRODUCTIVE": self.killed.steps(first=0, last=self.resumed_from)
            + self.completed.steps(first=self.resumed_from + 1, last=last),
            "TPU_INITIALIZATION": sum(life.total("device-init") for life in lives),
            "TRAINING_PREP": sum(life.preparation for life in lives),
            "PROGRAM_STARTUP": sum(life.compilation for life in lives),
            "DATA_LOADING_SYNC": sum(life.total("data") for life in lives),
            "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME": sum(life.total("save") for life in lives),
            "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME": sum(life.total("restore") for life in lives),
            "WASTED_PROGRESS_FROM_DISRUPTION": self.killed.steps(first=self.resumed_from + 1, last=last),
            "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION": self.completed.start - self.killed.end,
            "CUSTOM_BADPUT_EVENTS": sum(life.evaluation for life in lives),
        }
        # The way out, and the few milliseconds between the stretches that the script timed.
        truth["OTHER"] = self.elapsed - sum(truth.values())
        return truth

    def figure(self, bucket: str) -> int:
        if bucket == "PRODUCTIVE":
            return nanoseconds(self.report["goodput_seconds"])
        figure = self.report["badput_seconds"][bucket]
        return nanoseconds(figure["EVAL"] if bucket == "CUSTOM_BADPUT_EVENTS" else figure)


def nanoseconds(seconds: float) -> int:
    return round(seconds * NS)


def read_times(path: Path) -> list[Stretch]:
    return [Stretch(*json.loads(line)) for line in path.read_text().splitlines()]


def live(command: list[str], times: Path, environment: dict[str, str], kill_at: str = "never") -> TimedLife:
    """Run the script to its end, or kill it as soon as it has told of that step."""
    start = time.time_ns()
    with subprocess.Popen([*command, str(times)], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == kill_at:
                process.kill()
                process.wait()
                break
    dead = time.time_ns()
    assert process.returncode == (0 if kill_at == "never" else -signal.SIGKILL)
    return TimedLife(start, dead, read_times(times))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    pytest.importorskip("torch", reason="the script loads its data with torch")
    place = tmp_path_factory.mktemp("story")
    command = [sys.executable, str(SCRIPTS / "timed_digits.py"), str(place / "checkpoints")]
    environment = without_ours(GOODPUT_PLUGINS="auto", GOODPUT_DIR=str(place / "goodput"), GOODPUT_RUN_NAME="timed")
    killed = live(command, place / "first", environment, kill_at=str(KILL_AT))
    time.sleep(OUTAGE)
    completed = live(command, place / "second", environment)
    return Story(killed, completed, report_of(only_run_in(place / "goodput")))


BUCKETS = (
    "PRODUCTIVE",
    "TPU_INITIALIZATION",
    "TRAINING_PREP",
    "PROGRAM_STARTUP",
    "DATA_LOADING_SYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "WASTED_PROGRESS_FROM_DISRUPTION",
    "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "CUSTOM_BADPUT_EVENTS",
    "OTHER",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bucket", BUCKETS)
def test_each_bucket_is_what_the_script_timed(story: Story, bucket: str) -> None:
    truth = story.truth()[bucket]
    assert abs(story.figure(bucket) - truth) <= max(0.02 * truth, NS // 10)


def test_what_the_script_planted_is_found(story: Story) -> None:
    """The truth itself is not empty: each planted sleep is in it, and the work that was lost."""
    truth = story.truth()
    assert truth["DATA_LOADING_SYNC"] > 0.02 * NS * (100 + KILL_AT - story.resumed_from)
    assert truth["CUSTOM_BADPUT_EVENTS"] > 0.3 * NS * 4
    assert truth["OTHER"] > 0.6 * NS
    assert truth["TRAINING_PREP"] > 2 * 0.8 * NS
    assert truth["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"] > OUTAGE * NS
    assert truth["WASTED_PROGRESS_FROM_DISRUPTION"] > 20 * story.killed.ideal
    assert story.resumed_from == 40


def test_recovery_is_the_outage_and_the_last_moments_of_which_no_word_was_left(story: Story) -> None:
    outage = story.completed.start - story.killed.dead
    last_moments = story.killed.dead - story.killed.end
    assert last_moments < NS // 2  # a step and a wait for data at most, and the time that a kill takes
    assert outage - NS // 100 <= story.figure("INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION")


def test_the_elapsed_time_goes_from_the_first_process_start_to_the_last_atexit(story: Story) -> None:
    assert abs(nanoseconds(story.report["elapsed_seconds"]) - story.elapsed) <= 0.2 * NS


def test_the_buckets_sum_to_the_elapsed_time_exactly(story: Story) -> None:
    report = story.report
    spent = [report["goodput_seconds"]]
    for value in report["badput_seconds"].values():
        spent.extend(value.values() if isinstance(value, dict) else [value or 0.0])
    assert sum(map(nanoseconds, spent)) == nanoseconds(report["elapsed_seconds"])


def test_the_report_tells_the_story_of_both_lives(story: Story) -> None:
    report = story.report
    assert (report["status"], report["disruptions"], report["excluded_seconds"]) == ("completed", 1, 0.0)
    first, second = report["attempts"]
    assert (first["exit"], first["first_step"]) == ("lost", 0)
    assert first["last_step"] in (KILL_AT, KILL_AT + 1)
    assert (second["exit"], second["first_step"], second["last_step"]) == ("completed", 41, 99)
    assert (report["steps"]["last"], report["steps"]["max_productive"], report["steps"]["count"]) == (99, 99, 100)
    assert report["preserved_goodput_percent"] == report["goodput_percent"]
    ideal = usual(story.killed.judged + story.completed.judged)
    assert abs(nanoseconds(report["steps"]["ideal_seconds"]) - ideal) <= 0.15 * ideal
    assert set(report["plugins"]) >= {"jax", "flax", "orbax", "torch"}


# --- the example itself, with the switch and without it ---------------------------------------------------------------


@dataclass
class Run:
    workdir: Path
    place: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    pytest.importorskip("torch", reason="the example loads its data with torch")
    return {switch: example(tmp_path_factory.mktemp(switch), switch) for switch in ("off", "auto")}


def example(place: Path, switch: str) -> Run:
    """The unmodified example, 60 steps, in a folder of its own."""
    command = [sys.executable, str(EXAMPLE), "--workdir", "checkpoints", "--steps", "60", "--eval-every", "25"]
    environment = without_ours(**({} if switch == "off" else {"GOODPUT_PLUGINS": switch}))
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Run(place / "checkpoints", place, done.stdout, done.stderr)


def final_state(run: Run) -> Any:
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(run.workdir) as manager:
        assert manager.latest_step() == 59
        return manager.restore(59, args=ocp.args.StandardRestore())


@pytest.mark.timeout(300)
def test_training_gives_bit_equal_results_with_the_switch_and_without(runs: dict[str, Run]) -> None:
    import jax
    import numpy as np

    plain, watched = (jax.tree.leaves_with_path(final_state(runs[switch])) for switch in ("off", "auto"))
    assert len(plain) == len(watched) > 20
    for (path, left), (same_path, right) in zip(plain, watched, strict=True):
        assert path == same_path
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes(), jax.tree_util.keystr(path)


def test_the_switch_adds_nothing_to_stdout(runs: dict[str, Run]) -> None:
    plain, watched = (re.sub(r" +\d+\.\d s$", "", runs[switch].stdout, flags=re.M) for switch in ("off", "auto"))
    assert plain.count("\n") > 3
    assert watched == plain


def test_a_run_without_trouble_says_nothing_of_ours_on_stderr(runs: dict[str, Run]) -> None:
    assert "goodput" not in runs["auto"].stderr


def test_without_the_switch_nothing_is_written(runs: dict[str, Run]) -> None:
    assert [path.name for path in runs["off"].place.iterdir()] == ["checkpoints"]
    assert {path.name for path in runs["auto"].place.iterdir()} == {"checkpoints", "goodput"}


# --- how a process ends ----------------------------------------------------------------------------------------------

ENDINGS = {
    "exception": (1, "exception:ValueError"),
    "SIGTERM": (-signal.SIGTERM, "lost"),
    "SIGKILL": (-signal.SIGKILL, "lost"),
}
"""What the report says of these; each way to end, with and without us, is in test_exit."""


def end(how: str, place: Path, **ours: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "ending.py"), how]
    return subprocess.run(command, cwd=place, env=without_ours(**ours), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", ENDINGS)
def test_a_process_ends_as_it_would_have_without_us(how: str, tmp_path: Path) -> None:
    code, exit = ENDINGS[how]
    done = end(how, tmp_path, GOODPUT_PLUGINS="auto")
    assert done.returncode == code, done.stderr
    in_a_minute = f"{time.time() + 60:.0f}"  # until then a process that was killed passes for alive
    (attempt,) = report_of(only_run_in(tmp_path / "goodput"), "--as-of", in_a_minute)["attempts"]
    assert (attempt["first_step"], attempt["last_step"], attempt["exit"]) == (0, 4, exit)


def test_an_unset_switch_loads_and_writes_nothing(tmp_path: Path) -> None:
    done = end("completed", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith(" False\n")
    assert list(tmp_path.iterdir()) == []
