"""Writing a run's goodput to TensorBoard, where its author already looks.

Tags that Google's library writes keep their names; shares are percent of the elapsed time::

    goodput/goodput                          badput/<source>
    badput/custom_badput_events/<event>      step_deviation (seconds)

and beside them: ``goodput/preserved``, ``goodput/disruptions``, ``steps/...`` (seconds), ``rolling_<n>s/...``. The x
axis is the highest step that was ever started, so that a restart is a stair in each line and not a loop; the wall time
of a point is when it was true. The tab *Custom scalars* has the tags that belong together in one chart.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter, directory_check

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Report, percent, seconds
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.series import ALL, Wanted, badput_of

CHARTS = {
    "Goodput, percent of the elapsed time": ["^goodput/(goodput|preserved)$"],
    "Badput by source, percent of the elapsed time": ["^badput/"],
    "Goodput in rolling windows, percent": [r"^rolling_\d+s/goodput/"],
    "Badput in rolling windows, percent": [r"^rolling_\d+s/badput/"],
    "Step time, seconds": ["^steps/", "^step_deviation$"],
}
"""What is drawn in one chart: regular expressions of tags."""
_TEXTS = {
    "goodput/goodput": "Time of steps that were kept, percent of the elapsed time.",
    "goodput/preserved": "Time of steps inside a checkpoint, percent of the elapsed time.",
    "goodput/disruptions": "How often training stopped unexpectedly and had to be started again.",
    "step_deviation": "How much slower the slow ones of the recent steps are than usual, seconds.",
    "steps/ideal_seconds": "A step without noise, seconds.",
    "steps/p50_seconds": "The median step, seconds.",
    "steps/p99_seconds": "99 of 100 steps are shorter, seconds.",
}


class TensorBoard:
    """The exporter.

    Args:
        folder: the log directory; an agent that is started again goes on there in a file of its own.
        wanted: what is written.
    """

    name = "tensorboard"

    def __init__(self, folder: str, wanted: Wanted = ALL) -> None:
        self._folder = folder
        self._wanted = wanted
        self._file: EventFile | None = None
        self._sent = 0
        self._last: int | None = None
        self._highest = (0, 0)

    def export(self, snapshot: Snapshot) -> None:
        """Write it.

        Raises:
            OSError: the disk is full, or gone; the next snapshot begins a file of its own.
        """
        found = Summary()
        for tag, value in scalars(snapshot, self._wanted):
            found.value.append(_scalar(tag, value))
        if self._file is not None and self._file.is_gone():
            self.close()
        try:
            if self._file is None:
                self._file = EventFile(self._folder)
            self._file.write(found, snapshot.now, self._step(snapshot.report))
        except OSError:
            self.close()
            raise
        self._sent += len(found.value)
        self._last = snapshot.now

    def status(self) -> Mapping[str, object]:
        return {"sent": self._sent, "last_success": self._last}

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _step(self, report: Report) -> int:
        """The highest step that was started in this generation of the run."""
        steps = [report.steps.last or 0, *(attempt.last_step or 0 for attempt in report.attempts)]
        generation, before = self._highest
        highest = max(steps) if report.generation != generation else max(before, *steps)
        self._highest = report.generation, highest
        return highest


class EventFile:
    """A file of TensorBoard's, written at once: tensorboardX's own writer waits for ever when its disk was full.

    Args:
        folder: where; it is made if it is not there.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, folder: str) -> None:
        directory_check(folder)
        now = time.time_ns()
        moment = f"{now // 10**9:010}.{socket.gethostname()}.{os.getpid()}.{now % 10**9:09}"  # so as to sort by it
        self._path = os.path.join(folder, f"events.out.tfevents.{moment}")
        self._file = RecordWriter(self._path)
        try:
            self._file.write(Event(wall_time=now / 1e9, file_version="brain.Event:2").SerializeToString())
            charts = {title: ["Multiline", tags] for title, tags in CHARTS.items()}
            self.write(summary.custom_scalars({"Goodput": charts}), now, 0)
        except OSError:
            self.close()
            raise
        self._is_local = os.path.exists(self._path)

    def is_gone(self) -> bool:
        """Whether somebody deleted it: what is written to it then nobody sees."""
        return self._is_local and not os.path.exists(self._path)

    def write(self, found: Summary, at: int, step: int) -> None:
        """Append values that were so at that time, ns since the epoch, and step.

        Raises:
            OSError: it is not there, or not whole; nothing that is written after it would be read.
        """
        self._file.write(Event(wall_time=at / 1e9, step=step, summary=found).SerializeToString())
        self._file.flush()

    def close(self) -> None:
        """Let go of it; a file that the disk took nothing of goes."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            if os.path.getsize(self._path) == 0:
                os.unlink(self._path)


def scalars(snapshot: Snapshot, wanted: Wanted = ALL) -> Iterator[tuple[str, float]]:
    """The tags of a snapshot and their values; what is not known has none."""
    if wanted.goodput:
        yield from _run(snapshot.report, wanted)
    if wanted.deviation:
        yield from _steps(snapshot.report)
    if wanted.windows:
        for length, window in snapshot.windows.items():
            yield from _shares(window, f"rolling_{length}s/", wanted)


def _scalar(tag: str, value: float) -> Any:
    """A value with its text; who reads event files by hand is warned of texts that belong to no plugin."""
    (made,) = summary.scalar(tag, value, summary_description=_text(tag)).value
    made.metadata.plugin_data.plugin_name = "scalars"
    return made


def _text(tag: str) -> str:
    """What a tag tells, for the reader who asks for it."""
    window = re.match(r"rolling_(\d+)s/", tag)
    of = f"the last {window[1]} s" if window else "the elapsed time"
    _, is_badput, source = tag.rpartition("badput/")
    if is_badput:
        return f"Time that {source.upper()} took, percent of {of}."
    return _TEXTS.get(tag) or f"Time of steps that were kept, percent of {of}."


def _run(report: Report, wanted: Wanted) -> Iterator[tuple[str, float]]:
    yield from _shares(report, "", wanted)
    preserved = percent(report.preserved, report.breakdown.elapsed)
    if preserved is not None:
        yield "goodput/preserved", preserved
    yield "goodput/disruptions", float(report.disruptions)


def _steps(report: Report) -> Iterator[tuple[str, float]]:
    steps = report.steps
    times = {
        "step_deviation": steps.deviation,
        "steps/ideal_seconds": steps.ideal,
        "steps/p50_seconds": steps.p50,
        "steps/p99_seconds": steps.p99,
    }
    yield from ((tag, seconds(ns)) for tag, ns in times.items() if ns is not None)


def _shares(report: Report, prefix: str, wanted: Wanted) -> Iterator[tuple[str, float]]:
    elapsed = report.breakdown.elapsed
    if not elapsed:
        return
    yield f"{prefix}goodput/goodput", 100 * report.breakdown.goodput / elapsed
    for source, ns in badput_of(report) if wanted.badput else ():
        kind, _, event = source.partition(".")
        tag = f"{kind}/{event}" if kind == Bucket.CUSTOM.value else kind
        yield f"{prefix}badput/{tag.lower()}", 100 * ns / elapsed
