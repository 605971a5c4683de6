"""Recording by hand, under the names of Google's ML Goodput Measurement library.

::

    from goodput_plugins import measurement

    recorder = measurement.GoodputRecorder(job_name="run-1", logger_name="goodput_run-1", logging_enabled=is_process_0)
    with recorder.record_event(measurement.Event.JOB):
        for step in range(steps):
            with recorder.record_event(measurement.Event.DATA_LOADING):
                batch = next(batches)
            with recorder.record_event(measurement.Event.STEP, step):
                train_step(batch)

What is told goes into the journal of this process, where hooks tell what they see, and the run has the
job's name (unless ``GOODPUT_RUN_NAME`` is set). With hooks and by hand at once nothing counts twice: of
activities inside each other the innermost owns the time, and from the first step told by hand on, what
hooks take for steps is part of it. ``docs/google-library.md`` says what differs from the library.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import TracebackType
from typing import Any

from goodput_plugins.core.events import Activity, Kind, encode
from goodput_plugins.core.events import Event as _Told
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.session import current, note
from goodput_plugins.core.shipper import google_cloud_is_at_hand, missing

__all__ = ["ElasticGoodputRecorder", "Event", "GoodputRecorder"]

UNNAMED = "unknown"
"""What a custom event is called that was given no name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(Enum):
    """What a stretch of code is, for :meth:`GoodputRecorder.record_event`."""

    JOB = "job"
    """The whole job."""
    ACCELERATOR_INIT = "tpu_init"
    """Setting up devices, mesh, distributed runtime."""
    TRAINING_PREP = "training_preparation"
    """Building model, optimizer and train state; loading a checkpoint."""
    DATA_LOADING = "data_loading"
    """Getting a batch."""
    STEP = "step"
    """A training step; the second argument is its number. It lasts until the next one starts."""
    CUSTOM = "custom_badput_event"
    """Work that holds training up, such as an evaluation; the second argument is its name."""


class GoodputRecorder:
    """Records a training job.

    No method raises into the job, waits, or talks to a network. Times that are not given are now; a
    naive datetime is local time. An end without a start is ignored; a start whose end never comes ends
    with the next step.

    Args:
        job_name: the run's name.
        logger_name: the log in Cloud Logging, to which an agent process sends what is recorded, where the
            environment says which project (see ``docs/cloud-logging.md``).
        logging_enabled: whether this process records by hand; true in one process of a job.
        cloud_logger: an object whose ``write_cloud_logging_entry(payload)`` is also handed each event, in
            the library's payloads.
        background_grace_period_s, background_batch_size, background_max_latency_s: accepted and not
            needed; nothing is sent from here.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        logging_enabled: bool = False,
        cloud_logger: Any = None,
        *,
        background_grace_period_s: float = 5.0,
        background_batch_size: int = 100,
        background_max_latency_s: float = 2.0,
    ) -> None:
        self.job_name = job_name
        self.logger_name = logger_name
        self._told = _Teller(job_name, logger_name, cloud_logger) if logging_enabled else None
        self._guard = Guard("measurement")
        self._guard(note, logging_enabled=bool(logging_enabled))

    def record_event(self, event: Event, argument: Any = None) -> _Recording:
        """A context manager around what ``event`` names.

        Args:
            event: what the code in the block is.
            argument: the step's number (STEP), the event's name (CUSTOM).
        """
        return _Recording(self, event, argument)

    def flush(self) -> None:
        """Hand on what is held back; what was told is safe from a kill before that."""
        if self._told is not None:
            self._guard(self._told.flush)

    def record_job_start_time(self, start_time: datetime | None = None) -> None:
        """The job starts. It is taken to start with its process, or earlier, if ``start_time`` says so."""
        self._tell("job_start_time", start_time)

    def record_job_end_time(self, end_time: datetime | None = None) -> None:
        """The job ends: completed, unless an exception is under way."""
        self._tell("job_end_time", end_time)

    def record_step_start_time(self, step: int, start_time: datetime | None = None) -> None:
        """The training step of that number starts; the one before it ends."""
        if self._told is not None:
            self._guard(self._told.step, step, start_time)

    def record_tpu_init_start_time(self, start_time: datetime | None = None) -> None:
        """Setting up the accelerators starts."""
        self._tell("tpu_init_start_time", start_time)

    def record_tpu_init_end_time(self, end_time: datetime | None = None) -> None:
        """... and ends."""
        self._tell("tpu_init_end_time", end_time)

    def record_training_preparation_start_time(self, start_time: datetime | None = None) -> None:
        """Preparing to train starts."""
        self._tell("training_prep_start_time", start_time)

    def record_training_preparation_end_time(self, end_time: datetime | None = None) -> None:
        """... and ends."""
        self._tell("training_prep_end_time", end_time)

    def record_data_loading_start_time(self, start_time: datetime | None = None) -> None:
        """Waiting for a batch starts."""
        self._tell("data_loading_start_time", start_time)

    def record_data_loading_end_time(self, end_time: datetime | None = None) -> None:
        """... and ends."""
        self._tell("data_loading_end_time", end_time)

    def record_custom_badput_event_start_time(
        self, start_time: datetime | None = None, custom_badput_event_type: str = UNNAMED
    ) -> None:
        """Work of that name, which holds training up, starts."""
        self._tell("custom_badput_event_start_time", start_time, custom_badput_event_type=custom_badput_event_type)

    def record_custom_badput_event_end_time(
        self, end_time: datetime | None = None, custom_badput_event_type: str = UNNAMED
    ) -> None:
        """... and ends."""
        self._tell("custom_badput_event_end_time", end_time, custom_badput_event_type=custom_badput_event_type)

    def record_checkpoint_progress(self, step: int, checkpoint_start_time: datetime | None = None) -> None:
        """Does nothing, as in the library: hooks tell of checkpoints, or a custom event around a save."""

    def _tell(self, key: str, time: datetime | None, **named: str) -> None:
        if self._told is not None:
            self._guard(self._told.tell, key, time, **named)


class ElasticGoodputRecorder(GoodputRecorder):
    """Also records what an elastic job does when slices come and go."""

    def record_elastic_slice_counts(
        self, available_slices: int, active_slices: int, total_slices: int, timestamp: datetime | None = None
    ) -> None:
        """How many slices there are, train, and should train: a sign of life; no report uses the counts."""
        if self._told is not None:
            self._guard(self._told.slices, available_slices, active_slices, total_slices, timestamp)

    def record_elastic_wait_start_time(
        self, start_time: datetime | None = None, event_type: str = "slice_down"
    ) -> None:
        """Waiting for slices starts: to grow, if ``event_type`` contains ``scale_up``, else since one is down."""
        self._tell("elastic_wait_start_time", start_time, elastic_wait_event_type=event_type)

    def record_elastic_wait_end_time(self, end_time: datetime | None = None, event_type: str = "slice_down") -> None:
        """... and ends."""
        self._tell("elastic_wait_end_time", end_time, elastic_wait_event_type=event_type)

    def record_elastic_reinit_start_time(self, start_time: datetime | None = None) -> None:
        """Starting again with the slices that there are now starts."""
        self._tell("elastic_reinit_start_time", start_time)

    def record_elastic_reinit_end_time(self, end_time: datetime | None = None) -> None:
        """... and ends."""
        self._tell("elastic_reinit_end_time", end_time)


class _Recording:
    """What ``record_event`` gives: tells the start and the end of a block."""

    __slots__ = ("_argument", "_event", "_recorder")

    def __init__(self, recorder: GoodputRecorder, event: Event, argument: Any) -> None:
        self._recorder = recorder
        self._event = event
        self._argument = argument

    def __enter__(self) -> None:
        self._recorder._guard(self._call, "start")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._event is Event.JOB:
            self._recorder._tell("job_end_time", None, how=_how(error))
        elif self._event is not Event.STEP:
            self._recorder._guard(self._call, "end")

    def _call(self, edge: str) -> None:
        recorder, event, argument = self._recorder, Event(self._event), self._argument
        if event is Event.STEP:
            recorder.record_step_start_time(argument)
        elif event is Event.CUSTOM:
            name = UNNAMED if argument is None else str(argument)
            getattr(recorder, f"record_{event.value}_{edge}_time")(custom_badput_event_type=name)
        else:
            getattr(recorder, f"record_{event.value}_{edge}_time")()


_ACTIVITIES = {
    "tpu_init": Activity.DEVICE_INIT,
    "training_prep": Activity.PREPARATION,
    "data_loading": Activity.DATA,
    "custom_badput_event": Activity.CUSTOM,
    "elastic_reinit": Activity.REINITIALIZATION,
}


class _Teller:
    """Tells this process's recorder, and a logger of the user's if there is one."""

    def __init__(self, job_name: str, logger_name: str, cloud_logger: Any) -> None:
        self._job_name = job_name
        self._write = getattr(cloud_logger, "write_cloud_logging_entry", None)
        self._open: dict[tuple[Activity, str | None], _Begun] = {}
        self._last_step = 0
        session = current()
        session.call_run(job_name)
        if cloud_logger is None and google_cloud_is_at_hand(os.environ) and not missing(["cloud-logging"]):
            session.export("cloud-logging", logger_name)
        self._recorder: Recorder = session.recorder

    def flush(self) -> None:
        self._recorder.flush()

    def step(self, step: Any, time: datetime | None) -> None:
        """A step starts; not before the one before it, or the journal would be no log of one clock."""
        at = self._last_step = max(self._when(time), self._last_step)
        self._recorder.step_by_hand(step, at=at)
        self._hand_over("step_start_time", at, step_count=step)

    def tell(self, key: str, time: datetime | None, **named: str) -> None:
        """The event that the payload key names happens."""
        recorder, at = self._recorder, self._when(time)
        recorder.training_begins()
        if key == "job_start_time":
            if time is not None:
                recorder.write(encode(_Told(Kind.START, at)))
        elif key == "job_end_time":
            recorder.write(encode(_Told(Kind.END, at, name=named.pop("how", None) or _how(sys.exc_info()[1]))))
        else:
            activity, name = _activity(key, named)
            if key.endswith("start_time"):
                self._begin(activity, name, at if time is not None else None)
            else:
                self._finish(activity, name, at if time is not None else None)
        self._hand_over(key, at, **named)

    def slices(self, available: int, active: int, total: int, time: datetime | None) -> None:
        self._recorder.training_begins()
        self._recorder.heartbeat()
        counts = {"active_slices": active, "total_slices": total, "available_slices": available}
        self._hand_over("elastic_slice_counts_timestamp", self._when(time), **counts)

    def _begin(self, activity: Activity, name: str | None, at: int | None) -> None:
        """An activity begins; one that began before now is told when it is over."""
        thread = None
        if at is None and activity is Activity.DATA:
            self._recorder.begin(activity)
        elif at is None:
            thread = self._recorder.begin_apart(activity, name=name)
        self._open[activity, name] = _Begun(at, thread)

    def _finish(self, activity: Activity, name: str | None, at: int | None) -> None:
        begun = self._open.pop((activity, name), None)
        if begun is None:
            return
        until = self._recorder.now() if at is None else at
        if begun.at is not None:
            self._recorder.span(activity, begun.at, until - begun.at, name=name)
        elif begun.thread is not None:
            self._recorder.finish_apart(activity, begun.thread, until, name=name)
        else:
            self._recorder.finish(activity)

    def _when(self, time: datetime | None) -> int:
        return self._recorder.now() if time is None else nanoseconds(time)

    def _hand_over(self, key: str, at: int, **named: Any) -> None:
        if self._write is not None:
            self._write({"job_name": self._job_name, **named, key: at / 1e9})


class _Begun:
    """An activity that is open: since when, if that was given; on which thread, if that was told."""

    __slots__ = ("at", "thread")

    def __init__(self, at: int | None, thread: int | None) -> None:
        self.at = at
        self.thread = thread


def _activity(key: str, named: dict[str, str]) -> tuple[Activity, str | None]:
    """What a payload's keys name."""
    prefix = key.removesuffix("_start_time").removesuffix("_end_time")
    if prefix == "elastic_wait":
        scaling = "scale_up" in str(named["elastic_wait_event_type"]).lower()
        return (Activity.SCALE_UP if scaling else Activity.SLICE_DOWN), None
    return _ACTIVITIES[prefix], named.get("custom_badput_event_type")


def _how(error: BaseException | None) -> str:
    """How a job ends while this exception is under way, as an END names it."""
    if isinstance(error, SystemExit):
        return "exception:SystemExit" if error.code else "completed"
    if isinstance(error, KeyboardInterrupt):
        return "user"
    return "completed" if error is None else f"exception:{type(error).__name__}"


def nanoseconds(time: datetime) -> int:
    """A datetime in ns since the epoch; a naive one is local time."""
    return (time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1_000
