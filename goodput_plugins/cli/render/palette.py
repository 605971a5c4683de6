"""The look of each bucket: a colour that shows on black and on white, and a letter.

Colours go by family: startup is blue and violet, checkpoints pink and brown, data golden, what a
disruption cost red and orange. ``tests/test_cli_bars.py`` holds them to a contrast of 3 : 1 against
both backgrounds.
"""

from __future__ import annotations

from goodput_plugins.core.buckets import Bucket

COLORS: dict[Bucket, str] = {
    Bucket.PRODUCTIVE: "#0f9d68",
    Bucket.WASTED_PROGRESS: "#e0443e",
    Bucket.INFRASTRUCTURE_RECOVERY: "#d9722e",
    Bucket.TPU_INITIALIZATION: "#1f93bd",
    Bucket.TRAINING_PREP: "#4a72d8",
    Bucket.PROGRAM_STARTUP: "#8d62d9",
    Bucket.DATA_LOADING_SYNC: "#b08806",
    Bucket.SAVE: "#cc4f97",
    Bucket.RESTORE: "#a5694f",
    Bucket.CUSTOM: "#6f8f2a",
    Bucket.OTHER: "#808080",
    Bucket.ELASTIC_SLICE_DOWN: "#3f8f8f",
    Bucket.ELASTIC_SCALE_UP: "#5b8fa8",
    Bucket.ELASTIC_REINITIALIZATION: "#7f86a8",
}

_OF_16 = {Bucket.PRODUCTIVE: "green", Bucket.WASTED_PROGRESS: "red"}
"""The colours of 16 that every theme keeps readable."""

LETTERS: dict[Bucket, str] = {
    Bucket.PRODUCTIVE: "█",
    Bucket.WASTED_PROGRESS: "W",
    Bucket.INFRASTRUCTURE_RECOVERY: ".",
    Bucket.TPU_INITIALIZATION: "A",
    Bucket.TRAINING_PREP: "P",
    Bucket.PROGRAM_STARTUP: "C",
    Bucket.DATA_LOADING_SYNC: "D",
    Bucket.SAVE: "S",
    Bucket.RESTORE: "R",
    Bucket.CUSTOM: "E",
    Bucket.OTHER: "O",
    Bucket.ELASTIC_SLICE_DOWN: "v",
    Bucket.ELASTIC_SCALE_UP: "^",
    Bucket.ELASTIC_REINITIALIZATION: "x",
}
"""What stands for a bucket where colours cannot; nothing happens in a dot."""


def style(bucket: Bucket, *, solid: bool) -> str:
    """The style to draw a bucket in: its colour, or what is safe where there may be 16 or none."""
    return COLORS[bucket] if solid else _OF_16.get(bucket, "")
