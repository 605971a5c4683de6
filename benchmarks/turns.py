"""The same loop in two processes that take turns of a few steps, one as it is and one with what is measured.

Whatever else the machine does meets both. A round is turns there and back (without, with, with, without) and gives one
difference; told are their mean and its 95 % upper bound, for the time that the training thread needed a processor and
for the time that passed. The first is judged: the second has the machine's noise.

A worker is a script that prints a line when it is ready. For each line with a number of steps that it reads, it runs
them and prints what one took, s: by the clock, and of a processor.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass

from timing import machine, upper_bound, verdict

JUDGED = "processor"
KINDS = JUDGED, "wall"


@dataclass
class Turn:
    """What a step took in one turn, us."""

    wall: float
    processor: float


class Worker:
    """A process that runs the loop when it is told."""

    def __init__(self, script: str, **variables: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", script], env=environ | variables, stdin=-1, stdout=-1, text=True
        )
        self._answer()

    def turn(self, steps: int) -> Turn:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        wall, processor = map(float, self._answer().split())
        return Turn(wall * 1e6, processor * 1e6)

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the loop's process has ended")
        return line


def compare(without: Worker, measured: Worker, least: Worker, rounds: int, steps: int, bound: float) -> int:
    """Let them take turns, and print what a step costs more; 1 if that is beyond the bound, us of a processor.

    Beside it stands what the ``least`` costs that anything could do there.
    """
    order = without, measured, least, least, measured, without
    turns = [[worker.turn(steps) for worker in order] for _ in range(rounds)]
    for worker in (without, measured, least):
        worker.close()
    bounds = {}
    for kind in KINDS:
        times = [[getattr(turn, kind) for turn in six] for six in turns]
        bounds[kind] = tell(kind, [[a, b, c, d] for a, b, _, _, c, d in times])
        tell("the least", [[a, b, c, d] for a, _, b, c, _, d in times])
    print(f"bound: {bound:.0f} us of a processor, {verdict(bounds[JUDGED], bound)}; {machine()}")
    return int(bounds[JUDGED] > bound)


def tell(kind: str, rounds: list[list[float]], each: str = "step") -> float:
    """Print one kind of figure, of rounds of four turns, us; the upper bound of the difference."""
    differences = [(b + c - a - d) / 2 for a, b, c, d in rounds]
    bound = upper_bound(differences)
    plain = statistics.median((a + d) / 2 for a, _, _, d in rounds)
    mean, median = statistics.mean(differences), statistics.median(differences)
    print(f"{kind:>9}: {plain:.0f} us a {each} without; {mean:+.1f} us with it (median {median:+.1f}),", end=" ")
    print(f"95 % upper bound of the mean {bound:+.1f} us")
    return bound
