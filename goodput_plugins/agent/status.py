"""How the agent does, for people (``agent.log``) and for programs (``agent.json``), beside the journals."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from goodput_plugins.agent.position import replace
from goodput_plugins.core.shipper import STATUS

_saving = threading.Lock()


@dataclass
class Status:
    """What an agent has done.

    Attributes:
        state: ``waiting`` for the run, ``shipping``, ``failing``, ``done``, or ``unavailable``.
        destination: where things are sent to.
        pid: the agent's process.
        entries: how many entries were sent.
        bytes: of the journals that they hold.
        dropped: how many entries were refused for ever, over all agents of the run.
        uploads: how many times a journal was written to a bucket.
        unsent: how many bytes of the journals are not sent, where the agent left any.
        error: what the last try failed with; empty if it did not.
        exporters: how each exporter of reports does, by name: ``sent``, ``refused``, ``last_success`` (ns since the
            epoch), ``last_error``, as far as it knows.
        differing: the variables in which the training that runs now was started otherwise than this agent, which
            goes on with its own.
        moment: when this was so, s since the epoch.
    """

    state: str = "waiting"
    destination: str = ""
    pid: int = field(default_factory=os.getpid)
    entries: int = 0
    bytes: int = 0
    dropped: int = 0
    uploads: int = 0
    unsent: int = 0
    error: str = ""
    exporters: dict[str, dict[str, object]] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    moment: float = 0.0

    def sums(self) -> list[str]:
        """What was sent and what was not, in words."""
        told = [f"{self.entries} entries were sent"] if self.entries else []
        told += [f"{self.dropped} of the run were refused"] if self.dropped else []
        told += [f"{self.unsent} bytes are left to the next agent"] if self.unsent else []
        return told + [f"{name}: {_sum_of(how)}" for name, how in self.exporters.items()]

    def save(self, folder: Path) -> None:
        """Put it into the run's directory, if that takes it."""
        with _saving, suppress(OSError):
            self.moment = time.time()
            replace(folder / STATUS, json.dumps(asdict(self)).encode())


def _sum_of(how: Mapping[str, object]) -> str:
    """What one exporter sent, and what it could not."""
    counts = {"values sent": "sent", "refused": "refused", "not taken": "failed", "failed tries": "faults"}
    told = [f"{how[key]} {words}" for words, key in counts.items() if how.get(key)]
    told += ["the last values among them"] if how.get("fails") else []
    error = f" ({how['last_error']})" if how.get("last_error") else ""
    return (", ".join(told) or "nothing failed") + error


def log(text: str) -> None:
    """Say something in ``agent.log``, which is this process's stdout, if the disk takes it."""
    with suppress(OSError):
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)
