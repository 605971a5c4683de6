"""Saves in flight: from a checkpointer's call to the commit, or to the news that there will be none.

A save is durable once Orbax has renamed its folder; Orbax then calls ``record_completion`` with the
path, on a thread of its own. It is lost when waiting for it raises. Where neither can be seen (a
process that is not the one that commits) a wait that ended well means that it is durable.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.orbax.operations import Operation


@dataclass(eq=False, slots=True)
class Save:
    """A checkpoint that is being written.

    Attributes:
        path: where it will be.
        operation: the call that it is part of; the work after that call's end is background work.
        owners: what can be asked to wait for it: a manager, a checkpointer, a response.
        handed_over: the checkpointer's call has returned.
        cancelled: the user asked for it not to be finished.
    """

    path: str
    operation: Operation
    owners: list[weakref.ref[Any]] = field(default_factory=list)
    handed_over: bool = False
    cancelled: bool = False

    def owned_by(self, owner: object) -> bool:
        """Whether waiting for ``owner`` waits for this save."""
        return any(ref() is owner for ref in self.owners)


class InFlight:
    """The saves that are in flight; any thread may tell, also a signal handler, so there is no lock."""

    def __init__(self, recorder: NullRecorder) -> None:
        self._recorder = recorder
        self._saves: list[Save] = []

    def __bool__(self) -> bool:
        return bool(self._saves)

    def add(self, save: Save) -> None:
        """A checkpointer begins to write ``save``."""
        self._saves.append(save)

    def drop(self, save: Save) -> bool:
        """Forget ``save``; False if another thread already has."""
        try:
            self._saves.remove(save)
        except ValueError:
            return False
        return True

    def completed(self, path: str) -> None:
        """The oldest save to ``path`` is durable."""
        save = next((save for save in list(self._saves) if save.path == path), None)
        if save is not None:
            self._commit(save)

    def cancelled(self, owner: object) -> None:
        """The user does not want what ``owner`` has in flight any more."""
        for save in self._handed_over(owner):
            save.cancelled = True

    def waited(self, owner: object, error: BaseException | None) -> None:
        """Waiting for ``owner`` ended, so what it had in flight is durable or lost."""
        if error is not None and not isinstance(error, Exception):
            return  # Ctrl-C ends the wait, not the save
        for save in self._handed_over(owner):
            if error is None and not save.cancelled:
                self._commit(save)
            elif self.drop(save) and error is not None:
                self._recorder.commit_failed(save.operation.step, f"{type(error).__name__}: {error}")

    def _handed_over(self, owner: object) -> list[Save]:
        """Not the one whose call is under way: it waits for the one before, not for itself."""
        return [save for save in list(self._saves) if save.handed_over and save.owned_by(owner)]

    def _commit(self, save: Save) -> None:
        if self.drop(save):
            ended = save.operation.ended
            duration = None if ended is None else self._recorder.now() - ended
            self._recorder.committed(save.operation.step, duration=duration)
