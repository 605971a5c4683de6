"""An exporter's place in the agent: made when it is needed, tried again when it failed, and how it does."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from goodput_plugins.agent.status import log
from goodput_plugins.exporters import Exporter, Snapshot

PACED = frozenset({"cloud-monitoring"})
"""Exporters that take a point only now and then: what others wait for does not wait for them."""
AGAIN = 2.0
"""Where another process holds an exporter's port it is tried again after so long, s."""


@dataclass
class Slot:
    """An exporter that is wanted, made when it is first needed.

    Attributes:
        name: the exporter's.
        depends: on what; another one is made when that changes.
        make: makes it.
        exporter: it; None as long as it could not be made.
        error: what the last try failed with.
        faults: how many tries did.
        fails: the last one did, in part or in whole.
        again_at: when to try again, seconds of the monotonic clock, where that need not wait for the next round.
    """

    name: str
    depends: object
    make: Callable[[], Exporter]
    exporter: Exporter | None = None
    error: str = ""
    faults: int = 0
    fails: bool = False
    again_at: float = float("inf")
    _closed: Mapping[str, object] = field(default_factory=dict)

    @property
    def paced(self) -> bool:
        """Whether its last word may have to wait."""
        return self.name in PACED

    def export(self, snapshot: Snapshot) -> bool:
        """Hand it a snapshot; whether it sent something."""
        self.again_at = float("inf")
        try:
            if self.exporter is None:
                self.exporter = self.make()
            before = dict(self.exporter.status())
            self.exporter.export(snapshot)
            after = self.exporter.status()
        except Exception as fault:  # of a library, a disk, a network: others go on
            self._failed(fault)
            return False
        self.fails = any(after.get(count) != before.get(count) for count in ("failed", "refused"))
        self._tell(str(after.get("last_error") or ""))
        return after.get("sent") != before.get("sent")

    def status(self) -> dict[str, object]:
        """How it does, for ``agent.json``."""
        own = self._closed if self.exporter is None else self.exporter.status()
        told = {**own, "faults": self.faults, "fails": self.fails}
        return told | ({"last_error": self.error} if self.error else {})

    def close(self) -> None:
        """Let go of it."""
        exporter, self.exporter = self.exporter, None
        if exporter is not None:
            with suppress(Exception):
                self._closed = dict(exporter.status())
                exporter.close()

    def _failed(self, fault: Exception) -> None:
        self.faults += 1
        self.fails = True
        if isinstance(fault, OSError) and fault.errno == errno.EADDRINUSE:
            self.again_at = time.monotonic() + AGAIN
        self._tell(f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}")

    def _tell(self, error: str) -> None:
        """Say what has changed."""
        if error and error != self.error:
            log(f"{self.name}: {error}; it is tried again, and the others go on.")
        elif self.error and not error:
            log(f"{self.name}: works, after {self.faults} tries that failed.")
        self.error = error
