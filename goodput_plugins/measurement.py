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

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from types import TracebackType
from typing import Any

from goodput_plugins.core.by_hand import UNNAMED, Teller, how_it_ended
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.session import note

__all__ = ["ElasticGoodputRecorder", "Event", "GoodputRecorder"]


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

    No method raises into the job, waits, or talks to a network. Times that are not given, lie ahead or are no
    datetimes are now; a naive datetime is local time. An end without a start is ignored; a start whose end never
    comes ends with the next step.

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
        self._told = Teller(job_name, logger_name, cloud_logger) if logging_enabled else None
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
            self._recorder._tell("job_end_time", None, how=how_it_ended(error))
        elif self._event is not Event.STEP:
            self._recorder._guard(self._call, "end")

    def _call(self, edge: str) -> None:
        recorder, event, argument = self._recorder, self._event, self._argument
        if event not in _EVENTS:
            if edge == "start" and recorder._told is not None:
                recorder._told.odd(event, "that is no Event, so nothing is recorded of its block")
            return
        event = Event(event)
        if event is Event.STEP:
            recorder.record_step_start_time(argument)
        elif event is Event.CUSTOM:
            name = UNNAMED if argument is None else str(argument)
            getattr(recorder, f"record_{event.value}_{edge}_time")(custom_badput_event_type=name)
        else:
            getattr(recorder, f"record_{event.value}_{edge}_time")()


_EVENTS: Sequence[object] = [*Event, *(event.value for event in Event)]
