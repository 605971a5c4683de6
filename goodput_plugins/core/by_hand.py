"""What a script tells by hand, told to this process's recorder (see :mod:`goodput_plugins.measurement`)."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from goodput_plugins.core.events import Activity, Event, Kind, encode
from goodput_plugins.core.guard import say
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.session import current
from goodput_plugins.core.shipper import google_cloud_is_at_hand, missing

UNNAMED = "unknown"
"""What a custom event is called that was given no name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ACTIVITIES = {
    "tpu_init": Activity.DEVICE_INIT,
    "training_prep": Activity.PREPARATION,
    "data_loading": Activity.DATA,
    "custom_badput_event": Activity.CUSTOM,
    "elastic_reinit": Activity.REINITIALIZATION,
}


class Teller:
    """Tells this process's recorder, and a logger of the user's if there is one."""

    def __init__(self, job_name: str, logger_name: str, cloud_logger: Any) -> None:
        self._job_name = job_name
        self._write = getattr(cloud_logger, "write_cloud_logging_entry", None)
        self._open: dict[tuple[Activity, str | None], _Begun] = {}
        self._last_step = 0
        self._was_odd = False
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
                recorder.write(encode(Event(Kind.START, at)))
        elif key == "job_end_time":
            recorder.write(encode(Event(Kind.END, at, name=named.pop("how", None) or how_it_ended(sys.exc_info()[1]))))
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

    def odd(self, given: object, so: str) -> None:
        """Say, once, that an argument cannot be used, and what follows from that."""
        if not self._was_odd:
            self._was_odd = True
            plain = isinstance(given, str | int | float | datetime)  # of others the text could wait for a device
            what = repr(given)[:60] if plain else type(given).__name__
            say(f"a recorder was given {what}: {so}. This is said once; training goes on.")

    def _when(self, time: datetime | None) -> int:
        now = self._recorder.now()
        if time is None:
            return now
        try:
            at = nanoseconds(time)
        except (AttributeError, TypeError, ValueError, OverflowError, OSError):
            at = -1
        if at < 0:
            self.odd(time, "that is no time (a datetime after 1970), so the time of the call counts")
            return now
        return min(at, now)

    def _hand_over(self, key: str, at: int, **named: Any) -> None:
        if self._write is None:
            return
        try:
            self._write({"job_name": self._job_name, **named, key: at / 1e9})
        except Exception as error:  # whatever the script's logger raises
            self._write = None
            say(
                "the cloud_logger that the script handed in failed and gets nothing more; the journal does.",
                error=error,
            )


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


def how_it_ended(error: BaseException | None) -> str:
    """How a job ends while this exception is under way, as an END names it."""
    if isinstance(error, SystemExit):
        return "exception:SystemExit" if error.code else "completed"
    if isinstance(error, KeyboardInterrupt):
        return "user"
    return "completed" if error is None else f"exception:{type(error).__name__}"


def nanoseconds(time: datetime) -> int:
    """A datetime in ns since the epoch; a naive one is local time."""
    return (time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1_000
