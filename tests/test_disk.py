"""Disks that are full, read-only, gone, slow or across a network: one warning, and training goes on as ever."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from running import Runner
from slow_mount import slow_mount

from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Kind
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import RunLog

RECORD = """
import os, shutil, sys, time
from pathlib import Path
from goodput_plugins.core import background, heart
from goodput_plugins.core.events import Activity
from goodput_plugins.core.session import current
heart.INTERVAL = 0.05
recorder = current().recorder
number = 0

def train(steps, pause=0.0):
    global number
    longest = 0.0
    for _ in range(steps):
        began = time.perf_counter()
        with recorder.activity(Activity.DATA): pass
        recorder.step(number)
        recorder.device_done(number, recorder.now())
        if number % 10 == 9:
            with recorder.activity(Activity.SAVE, step=number): pass
        number += 1
        longest = max(longest, time.perf_counter() - began)
        if pause: time.sleep(pause)
    return longest

"""
TRAINED = "print('trained', number)\n"


def mounted(stack: ExitStack, folder: Path, *options: str) -> Path:
    """Mount something there, to the end of the test; skip the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
    return folder


def tmpfs(stack: ExitStack, folder: Path) -> Path:
    return mounted(stack, folder / "disk", "-t", "tmpfs", "-o", "size=1m", "none")


def ext4(stack: ExitStack, folder: Path) -> Path:
    image = folder / "image"
    image.write_bytes(bytes(4 << 20))
    made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("mkfs.ext4 is not here")
    return mounted(stack, folder / "disk", "-o", "loop", str(image))


def overlay(stack: ExitStack, folder: Path) -> Path:
    upper = tmpfs(stack, folder)
    for name in ("lower", "upper", "work"):
        (upper / name).mkdir()
    layers = ",".join(f"{name}dir={upper / name}" for name in ("lower", "upper", "work"))
    return mounted(stack, folder / "merged", "-t", "overlay", "-o", layers, "none")


@pytest.fixture(params=[tmpfs, ext4, overlay], ids=lambda make: make.__name__)
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    make: Callable[[ExitStack, Path], Path] = request.param
    with ExitStack() as stack:
        yield make(stack, tmp_path)


def logs(root: Path) -> RunLog:
    (folder,) = (folder for folder in root.iterdir() if folder.is_dir() and folder.name != "lost+found")
    (log,) = read(folder)
    return log


def report(log: RunLog) -> Report:
    result = calculate(log, now=time.time_ns())
    assert result.breakdown.elapsed == result.end - result.start
    return result


def notes(log: RunLog) -> set[str]:
    return {slug for slug, _ in log.notes}


# --- full ------------------------------------------------------------------------------------------


def test_a_full_disk_is_one_warning_and_nothing_is_lost_that_finds_room(run: Runner, small_disk: Path) -> None:
    done = run(
        RECORD
        + f"""
disk = Path({str(small_disk)!r})
train(10)
with open(disk / "filler", "wb", buffering=0) as filler:
    try:
        while True: filler.write(bytes(4096))
    except OSError: pass
before = number
train(20_000)
os.unlink(disk / "filler")
print(before, number)
train(1000)
"""
        + TRAINED,
        GOODPUT_DIR=str(small_disk),
    )
    (before, refused), (trained, total) = (line.split() for line in done.stdout.splitlines())
    assert trained == "trained"
    assert done.stderr.count("goodput:") == 1 and "cannot be written (No space left on device)" in done.stderr
    log = logs(small_disk)
    numbers = list(log.lives[0].steps.numbers)
    assert set(range(int(before))) | set(range(int(refused) + 1, int(total))) <= set(numbers)
    assert int(before) + 100 < len(numbers) < int(total)
    assert numbers == sorted(numbers)
    assert notes(log) == {"lost-lines"}
    assert report(log).status == "completed"


def test_a_disk_that_stays_full_leaves_what_fitted(run: Runner, small_disk: Path) -> None:
    done = run(RECORD + "train(60_000)\n" + TRAINED, GOODPUT_DIR=str(small_disk))
    assert done.stdout == "trained 60000\n" and done.stderr.count("goodput:") == 1
    log = logs(small_disk)
    numbers = list(log.lives[0].steps.numbers)
    assert numbers[:1000] == list(range(1000)) and len(numbers) > 5000
    assert "torn-lines" not in notes(log)
    report(log)


def test_a_disk_that_is_full_from_the_start_is_one_warning(run: Runner, small_disk: Path) -> None:
    with open(small_disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(512))
    done = run(RECORD + "train(1000)\n" + TRAINED, GOODPUT_DIR=str(small_disk))
    assert done.stdout == "trained 1000\n" and done.stderr.count("goodput:") == 1


# --- read-only, gone -------------------------------------------------------------------------------


def test_a_read_only_disk_is_one_warning(run: Runner) -> None:
    with ExitStack() as stack:
        disk = mounted(stack, run.folder / "disk", "-t", "tmpfs", "-o", "ro", "none")
        done = run(RECORD + "train(1000)\n" + TRAINED, GOODPUT_DIR=str(disk))
    assert done.stdout == "trained 1000\n" and done.stderr.count("goodput:") == 1
    assert "no journal can be kept" in done.stderr and "Read-only file system" in done.stderr


@pytest.mark.parametrize(
    "loss",
    [
        "shutil.rmtree(os.environ['GOODPUT_DIR'])",
        "current().journal.path.unlink()",
        "os.rename(os.environ['GOODPUT_DIR'], 'elsewhere')",
    ],
    ids=["folder deleted", "file deleted", "folder moved"],
)
def test_a_journal_that_vanishes_is_one_warning_and_recording_goes_on(run: Runner, loss: str) -> None:
    done = run(RECORD + f"train(1000)\n{loss}\ntime.sleep(0.5)\nbefore = number\ntrain(1000)\n" + TRAINED)
    assert done.stdout == "trained 2000\n"
    assert done.stderr.count("goodput:") == 1 and "was deleted while it was being written" in done.stderr
    log = logs(run.runs)
    assert list(log.lives[0].steps.numbers) == list(range(1000, 2000))
    assert notes(log) == {"missing-segments"}
    assert report(log).status == "completed"


def test_a_disk_that_is_unmounted_is_no_crash(run: Runner) -> None:
    with ExitStack() as stack:
        disk = mounted(stack, run.folder / "disk", "-t", "tmpfs", "none")
        mounted(stack, disk, "-t", "tmpfs", "none")  # the journal's, over another that remains
        unmount = f"import subprocess\nsubprocess.run(['umount', '-l', {str(disk)!r}], check=True)\n"
        again = f"train(1000)\n{unmount}time.sleep(0.5)\ntrain(1000)\n"
        done = run(RECORD + again + TRAINED, GOODPUT_DIR=str(disk))
        assert done.stdout == "trained 2000\n"
        assert list(logs(disk).lives[0].steps.numbers) == list(range(1000, 2000))
        subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], check=True)  # for the stack to unmount


# --- grown -----------------------------------------------------------------------------------------


def test_a_run_over_many_segments_is_one_attempt(run: Runner) -> None:
    small = "from goodput_plugins.core import place\nplace.SEGMENT = 50_000\n"
    done = run(small + RECORD + "train(10_000)\ntime.sleep(0.1)\ntrain(10_000)\n" + TRAINED)
    assert done.stdout == "trained 20000\n" and done.stderr == ""
    assert len(run.journals) > 2
    log = logs(run.runs)
    assert len(log.lives) == 1 and list(log.lives[0].steps.numbers) == list(range(20_000))
    assert list(log.lives[0].steps.ordinals) == list(range(20_000))
    (same,) = read(run.journals[-1])
    assert same == log
    assert report(log).status == "completed"


def test_an_attempt_that_grows_beyond_the_limit_goes_on_in_sums(run: Runner) -> None:
    done = run(RECORD + "train(20_000)\ntime.sleep(0.1)\ntrain(5000, 0.0002)\n" + TRAINED, GOODPUT_MAX_BYTES="100000")
    assert done.stdout == "trained 25000\n" and done.stderr == ""
    log = logs(run.runs)
    assert list(log.lives[0].steps.numbers) == list(range(25_000))
    assert b'["a",' in run.journals[0].read_bytes()
    assert report(log).steps.count == 25_000


# --- across a network ------------------------------------------------------------------------------


@pytest.fixture
def network(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A mount that a process serves, and the file that makes it hang while it is there."""
    folder = tmp_path / "mount"
    try:
        with slow_mount(folder) as hangs:
            yield folder, hangs
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")


def test_on_a_network_mount_everything_is_recorded(run: Runner, network: tuple[Path, Path]) -> None:
    done = run(RECORD + "train(5000)\n" + TRAINED, GOODPUT_DIR=str(network[0]))
    assert done.stdout == "trained 5000\n" and done.stderr == ""
    log = logs(network[0])
    assert list(log.lives[0].steps.numbers) == list(range(5000))
    assert report(log).status == "completed" and not notes(log)


def test_a_network_mount_that_hangs_does_not_hold_up_training(run: Runner, network: tuple[Path, Path]) -> None:
    folder, hangs = network
    done = run(
        RECORD
        + f"""
hangs = Path({str(hangs)!r})
usual = train(1000, 0.0005)
hangs.touch()
began = time.perf_counter()
longest = train(1000, 0.001)
took = time.perf_counter() - began
hangs.unlink()
assert longest < 0.5 and took < 5, (usual, longest, took)
"""
        + TRAINED,
        GOODPUT_DIR=str(folder),
    )
    assert done.stdout == "trained 2000\n" and done.stderr == ""
    log = logs(folder)
    assert list(log.lives[0].steps.numbers) == list(range(2000))
    assert report(log).status == "completed"


def test_what_waits_for_a_hung_mount_is_bounded_and_its_loss_is_told(run: Runner, network: tuple[Path, Path]) -> None:
    folder, hangs = network
    done = run(
        RECORD
        + f"""
background.MOST_QUEUED = 20_000
hangs = Path({str(hangs)!r})
train(1000, 0.0005)
hangs.touch()
train(5000)
hangs.unlink()
time.sleep(1)
train(1000, 0.0005)
"""
        + TRAINED,
        GOODPUT_DIR=str(folder),
    )
    assert done.stdout == "trained 7000\n"
    assert done.stderr.count("goodput:") == 1 and "cannot be written (Connection timed out)" in done.stderr
    log = logs(folder)
    numbers = list(log.lives[0].steps.numbers)
    assert {*range(1000), *range(6001, 7000)} <= set(numbers) and len(numbers) < 6500
    assert notes(log) == {"lost-lines"}
    assert report(log).status == "completed"


def test_a_mount_that_hangs_at_the_end_holds_up_the_exit_for_moments_only(
    run: Runner, network: tuple[Path, Path]
) -> None:
    folder, hangs = network
    began = time.monotonic()
    (folder / "file").touch()  # from here on the kernel knows that the server has no use for a flush
    hanging = f"train(1000, 0.0005)\nPath({str(hangs)!r}).touch()\ntrain(100)\n"
    done = run(RECORD + hanging + TRAINED, GOODPUT_DIR=str(folder))
    assert time.monotonic() - began < 15
    assert done.stdout == "trained 1100\n" and done.stderr.count("goodput:") == 1
    hangs.unlink()
    kinds = {event.kind for event in logs(folder).lives[0].events}
    assert Kind.START in kinds
