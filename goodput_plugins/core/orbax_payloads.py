"""What Orbax's cloud logger writes of a save or a restore."""

from __future__ import annotations

from typing import Any


def checkpoint(kind: str, step: int | None, begin: int, end: int) -> dict[str, Any]:
    """The payload of a ``save`` or a ``restore`` that held up training from ``begin`` to ``end`` (ns since the epoch).

    Google's calculator wants each of these keys and takes no null for a duration: what of a save was a wait for the one
    before, or a look for old steps, is within the whole; a directory that is not known is an empty one.
    """
    payload: dict[str, Any] = {"event_type": kind, "step": step, "directory": ""}
    suffix = "_blocking" if kind == "save" else ""
    for what in (f"checkpointer{suffix}", f"checkpoint_manager{suffix}"):
        payload[f"{what}_start_time"] = begin / 1e9
        payload[f"{what}_duration_secs"] = (end - begin) / 1e9
    if kind == "save":
        payload |= {"wait_for_prev_duration_secs": 0.0, "get_old_steps_duration_secs": 0.0}
    return payload
