"""Where a second can go: the buckets of a report.

Names are spelled as Google's library spells them. Every nanosecond of a run's elapsed time is in
exactly one bucket that is not overlapped; ``EXCLUDED`` is outside the elapsed time.
"""

from __future__ import annotations

from enum import StrEnum

from goodput_plugins.core.events import Activity


class Bucket(StrEnum):
    """A source of goodput (the first), of badput, or of overlapped work."""

    PRODUCTIVE = "PRODUCTIVE"
    TPU_INITIALIZATION = "TPU_INITIALIZATION"
    TRAINING_PREP = "TRAINING_PREP"
    PROGRAM_STARTUP = "PROGRAM_STARTUP"
    DATA_LOADING_SYNC = "DATA_LOADING_SYNC"
    SAVE = "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"
    RESTORE = "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"
    WASTED_PROGRESS = "WASTED_PROGRESS_FROM_DISRUPTION"
    INFRASTRUCTURE_RECOVERY = "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"
    CUSTOM = "CUSTOM_BADPUT_EVENTS"
    OTHER = "OTHER"
    ELASTIC_SLICE_DOWN = "ELASTIC_SLICE_DOWN"
    ELASTIC_SCALE_UP = "ELASTIC_SCALE_UP"
    ELASTIC_REINITIALIZATION = "ELASTIC_REINITIALIZATION"

    DATA_LOADING_ASYNC = "DATA_LOADING_ASYNC"
    SAVE_ASYNC = "CHECKPOINT_SAVE_ASYNC"
    EXCLUDED = "EXCLUDED"


OVERLAPPED = (Bucket.DATA_LOADING_ASYNC, Bucket.SAVE_ASYNC)
"""Work beside the training thread: reported, owning no time."""

BADPUT = tuple(b for b in Bucket if b not in (Bucket.PRODUCTIVE, Bucket.EXCLUDED, *OVERLAPPED))
"""The buckets whose sum with PRODUCTIVE is the elapsed time."""

OWNER_OF: dict[Activity, tuple[Bucket, str | None]] = {
    Activity.IMPORT: (Bucket.TRAINING_PREP, "IMPORTS"),
    Activity.DEVICE_INIT: (Bucket.TPU_INITIALIZATION, None),
    Activity.PREPARATION: (Bucket.TRAINING_PREP, None),
    Activity.TRACE: (Bucket.PROGRAM_STARTUP, "TRACE"),
    Activity.LOWER: (Bucket.PROGRAM_STARTUP, "LOWER"),
    Activity.COMPILE: (Bucket.PROGRAM_STARTUP, "COMPILE"),
    Activity.CACHE_LOAD: (Bucket.PROGRAM_STARTUP, "CACHE_LOAD"),
    Activity.DATA: (Bucket.DATA_LOADING_SYNC, None),
    Activity.SAVE: (Bucket.SAVE, None),
    Activity.RESTORE: (Bucket.RESTORE, None),
    Activity.DATA_REPLAY: (Bucket.RESTORE, "DATA_REPLAY"),
    Activity.CUSTOM: (Bucket.CUSTOM, None),
    Activity.SLICE_DOWN: (Bucket.ELASTIC_SLICE_DOWN, None),
    Activity.SCALE_UP: (Bucket.ELASTIC_SCALE_UP, None),
    Activity.REINITIALIZATION: (Bucket.ELASTIC_REINITIALIZATION, None),
}
"""The bucket, and its sub-source, that an activity of the training thread gives its time to.

A ``CUSTOM`` activity's sub-source is its own name, in upper case.
"""

LABELS: dict[Bucket, str] = {
    Bucket.PRODUCTIVE: "Productive steps",
    Bucket.TPU_INITIALIZATION: "Accelerator init",
    Bucket.TRAINING_PREP: "Preparation",
    Bucket.PROGRAM_STARTUP: "Compilation",
    Bucket.DATA_LOADING_SYNC: "Waiting for data",
    Bucket.SAVE: "Checkpoint save",
    Bucket.RESTORE: "Checkpoint restore",
    Bucket.WASTED_PROGRESS: "Wasted progress",
    Bucket.INFRASTRUCTURE_RECOVERY: "Waiting for a restart",
    Bucket.CUSTOM: "Evaluation and custom",
    Bucket.OTHER: "Other",
    Bucket.ELASTIC_SLICE_DOWN: "Elastic: slice down",
    Bucket.ELASTIC_SCALE_UP: "Elastic: scale up",
    Bucket.ELASTIC_REINITIALIZATION: "Elastic: re-init",
    Bucket.DATA_LOADING_ASYNC: "Data loading, overlapped",
    Bucket.SAVE_ASYNC: "Checkpoint write, overlapped",
    Bucket.EXCLUDED: "Excluded",
}
"""Words for a person who reads a report."""
