"""What one recorded event costs the training thread, beside the cheapest writes that a process can make.

    python benchmarks/record.py [--count 20000] [--seconds 30] [--folder PLACE]

Each event is durable when its call returns: a ``kill -9`` does not take it. Two cases:

- back to back: events one after the other, with warm caches. Groups of ten are timed, so that the timer
  does not count. Target: 2.5 us (median).
- paced: an event every 2 ms, as in training, with whatever happens to the caches meanwhile. The operations
  take turns, one each 2 ms, so that all meet the same machine; saves come last, since each ends the journal
  line that steps share. Target: 8 us (median), 100 us (99.9 %).

``os.write`` (60 bytes to a file) and a store of as much into a memory mapping are measured in the same
run. On a busy machine all figures rise together: then look at the ratio.
"""

from __future__ import annotations

import argparse
import gc
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from timing import machine, percentile, verdict

from goodput_plugins.core.clock import system_clock
from goodput_plugins.core.events import SCHEMA, Activity
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.reading import read_journal
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.runlog import Steps

BACK_TO_BACK_US = 2.5
PACED_US, PACED_WORST_US = 8.0, 100.0
GROUP = 10
PAUSE = 0.002
LINE = b'["s",1780000012000000000,0,41]' + b" " * 29 + b"\n"

Operation = Callable[[], object]


class Subject:
    """A recorder with a journal of its own, and the calls that hooks make."""

    def __init__(self, folder: Path) -> None:
        clock = system_clock()
        header = {"schema": SCHEMA, "run": "benchmark", "attempt": "a", "start": clock()}
        self.journal = Journal(folder / "journal.jsonl", header)
        self.recorder = Recorder(self.journal.write, clock)
        self.recorder.write_to(self.journal)
        self.number = 0

    def step(self) -> None:
        self.recorder.step(self.number)
        self.number += 1

    def wait_begins(self) -> None:
        self.recorder.begin(Activity.DATA)

    def wait_ends(self) -> None:
        self.recorder.finish(Activity.DATA)

    def save_begins(self) -> None:
        self.recorder.begin(Activity.SAVE, step=self.number)

    def save_ends(self) -> None:
        self.recorder.finish(Activity.SAVE, step=self.number)

    def steps_in_journal(self) -> int:
        """How many steps the journal holds."""
        data = self.journal.path.read_bytes()
        steps = Steps()
        for event in read_journal(self.journal.path, data).events:
            steps.add(event)
        return steps.told


def bare(folder: Path) -> dict[str, Operation]:
    """The cheapest durable writes there are."""
    written = os.open(folder / "written", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    mapped = os.open(folder / "mapped", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(mapped, 0, 1 << 20)
    mapping = mmap.mmap(mapped, 1 << 20)
    at = 0

    def store() -> None:
        nonlocal at
        at = (at + len(LINE)) % (1 << 19)
        mapping[at : at + len(LINE)] = LINE

    return {"os.write, 60 bytes": lambda: os.write(written, LINE), "store into a mapping, 60 bytes": store}


def events(subject: Subject) -> dict[str, list[Operation]]:
    """What hooks tell, each as the calls that make one after the other."""
    return {
        "step": [subject.step],
        "wait for data: begin, end, then the step": [subject.wait_begins, subject.wait_ends, subject.step],
        "save: begin, end": [subject.save_begins, subject.save_ends],
    }


def back_to_back(calls: list[Operation], count: int) -> list[float]:
    """Microseconds per call, of groups of ten rounds."""
    samples = []
    for _ in range(count // GROUP):
        began = time.perf_counter_ns()
        for _ in range(GROUP):
            for call in calls:
                call()
        samples.append((time.perf_counter_ns() - began) / GROUP / len(calls) / 1e3)
    return samples


def paced(operations: dict[str, list[Operation]], seconds: float) -> dict[str, list[float]]:
    """Microseconds of each call, one every 2 ms; the operations take turns."""
    samples: dict[str, list[float]] = {name: [] for name in operations}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, calls in operations.items():
            for call in calls:
                time.sleep(PAUSE)
                began = time.perf_counter_ns()
                call()
                samples[name].append((time.perf_counter_ns() - began) / 1e3)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one recorded event.")
    parser.add_argument("--count", type=int, default=20_000, help="events back to back")
    parser.add_argument("--seconds", type=float, default=30.0, help="of events 2 ms apart")
    parser.add_argument("--folder", help="where the journal is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        subject = Subject(Path(place))
        operations = {name: [call] for name, call in bare(Path(place)).items()} | events(subject)
        print(f"{machine()}; microseconds per event")
        print(f"{'':44}{'back to back':>14}{'2 ms apart':>24}")
        print(f"{'':44}{'median':>14}{'median':>14}{'99.9 %':>10}")
        gc.collect()
        close = {name: back_to_back(calls, options.count) for name, calls in operations.items()}
        *steady, saves = operations
        apart = paced({name: operations[name] for name in steady}, options.seconds * 0.75)
        apart |= paced({saves: operations[saves]}, options.seconds * 0.25)
        for name in operations:
            shown = statistics.median(close[name]), statistics.median(apart[name]), percentile(apart[name], 0.999)
            print(f"{name:44}{shown[0]:14.2f}{shown[1]:14.2f}{shown[2]:10.1f}")
        ours = events(subject)
        worst = [
            max(statistics.median(close[name]) for name in ours),
            max(statistics.median(apart[name]) for name in ours),
            percentile([sample for name in ours for sample in apart[name]], 0.999),
        ]
        targets = BACK_TO_BACK_US, PACED_US, PACED_WORST_US
        print(f"{'target':44}{targets[0]:14.2f}{targets[1]:14.2f}{targets[2]:10.1f}")
        marks = [verdict(figure, target) for figure, target in zip(worst, targets, strict=True)]
        print(f"{'':44}{marks[0]:>14}{marks[1]:>14}{marks[2]:>10}")
        write, store = (statistics.median(apart[name]) for name in bare(Path(place)))
        print(
            f"2 ms apart an event costs {worst[1] / write:.1f} x os.write, {worst[1] / store:.1f} x a store; "
            f"{machine()} at the end"
        )
        assert subject.steps_in_journal() == subject.number, "not each step is in the journal"


if __name__ == "__main__":
    main()
