"""Reports of a run that grows, handed to exporters again and again, on a thread of the agent's own.

So a network that is slow holds up neither the log nor the other way round. Each exporter stands for itself: a fault
of one is told once, counted, and tried again at the next round.

::

    metrics = Metrics(folder, settings, plan, status, told=door.wake)
    metrics.start()
    metrics.ask()           # somebody wants the last values: they are sent now
    metrics.finish()        # the run is over: its last word
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from goodput_plugins.agent.reports import Reports
from goodput_plugins.agent.settings import Settings
from goodput_plugins.agent.status import Status, log
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.report import Report
from goodput_plugins.exporters import Exporter, Snapshot

LOOK = 1.0
"""Seconds between two looks whether a monitor of the script's wants something else."""
PACED = frozenset({"cloud-monitoring"})
"""Exporters that take a point only now and then: what others wait for does not wait for them."""
LAST_WORD = 25.0
"""So long a run's last word may take: Cloud Monitoring takes a point each 10 s, s."""

Plan = Mapping[str, tuple[object, Callable[[], Exporter]]]
"""For each exporter what it depends on, and what makes it."""


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
    """

    name: str
    depends: object
    make: Callable[[], Exporter]
    exporter: Exporter | None = None
    error: str = ""
    faults: int = 0

    @property
    def paced(self) -> bool:
        """Whether its last word may have to wait."""
        return self.name in PACED

    def export(self, snapshot: Snapshot) -> bool:
        """Hand it a snapshot; whether it sent something."""
        try:
            if self.exporter is None:
                self.exporter = self.make()
            before = self.exporter.status().get("sent")
            self.exporter.export(snapshot)
            sent = self.exporter.status().get("sent") != before
            told = str(self.exporter.status().get("last_error") or "")
        except Exception as fault:  # of a library, a disk, a network: others go on
            self.faults += 1
            sent, told = False, f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
        if told and told != self.error:
            log(f"{self.name}: {told}; it is tried again, and the others go on.")
        self.error = told
        return sent

    def status(self) -> dict[str, object]:
        """How it does, for ``agent.json``."""
        own = {} if self.exporter is None else dict(self.exporter.status())
        return {**own, "faults": self.faults} | ({"last_error": self.error} if self.error else {})

    def close(self) -> None:
        """Let go of it."""
        exporter, self.exporter = self.exporter, None
        if exporter is not None:
            with suppress(Exception):
                exporter.close()


class Metrics:
    """Sends the reports of one run.

    Args:
        folder: the run's directory.
        settings: what is to be sent, asked each second.
        plan: the exporters that these settings want.
        status: where it is told how each does.
        told: called when what was asked for is done.
    """

    def __init__(
        self,
        folder: Path,
        settings: Callable[[], Settings],
        plan: Callable[[Settings], Plan],
        status: Status,
        *,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._plan = plan
        self._status = status
        self._told = told
        self._slots: dict[str, Slot] = {}
        self._late: list[tuple[Slot, Snapshot]] = []
        self._reports: Reports | None = None
        self._asked = self._kept = self._sent = 0
        self._last: Report | None = None
        self._ending = self._running = False
        self._due = time.monotonic()
        self._fault = ""
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="goodput-metrics", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self) -> None:
        """Send the values of now as soon as that may be."""
        self._asked += 1
        self._wake.set()

    def is_kept(self) -> bool:
        """Whether what needs no network has the values that were asked for last."""
        return self._kept == self._asked or not self._thread.is_alive()

    def is_sent(self) -> bool:
        """Whether what needs one has them too, unless it has to wait for its next point."""
        return self._sent == self._asked or not self._thread.is_alive()

    def is_running(self) -> bool:
        """Whether the newest report tells that the run goes on, or there is none yet."""
        return self._running

    def finish(self) -> None:
        """Send the run's last word, and let go of everything."""
        self._ending = True
        self._wake.set()
        self._thread.join(LAST_WORD)

    def nap(self, seconds: float) -> None:
        """Wait on the thread that sends; what is asked for meanwhile ends it."""
        until, asked, ending = time.monotonic() + seconds, self._sent, self._ending
        while (left := until - time.monotonic()) > 0 and (asked, ending) == (self._asked, self._ending):
            self._wake.wait(left)
            self._wake.clear()

    def _run(self) -> None:
        while True:
            ending, asked = self._ending, self._asked
            try:
                self._go_round(asked, last=ending or asked != self._sent)
            except Exception as fault:
                self._failed(fault)
            if self._sent != asked or self._kept != asked:
                self._kept = self._sent = asked
                self._told()
            self._say_late()
            if ending:
                break
            self._wake.wait(max(0.0, min(LOOK, self._due - time.monotonic())))
            self._wake.clear()
        for slot in self._slots.values():
            slot.close()

    def _go_round(self, asked: int, *, last: bool) -> None:
        """Send if it is time for it."""
        settings = self._settings()
        self._due = min(self._due, time.monotonic() + settings.interval)
        if self._take_up(settings) or last or time.monotonic() >= self._due:
            self._due = time.monotonic() + settings.interval
            self._round(settings, asked, last=last)

    def _failed(self, fault: Exception) -> None:
        """A fault of ours, or of what was recorded: begin anew at the next round."""
        text = f"reports cannot be made now: {type(fault).__name__}: {fault}"
        if text != self._fault:
            log(text)
        self._fault, self._reports = text, None

    def _take_up(self, settings: Settings) -> bool:
        """Let go of exporters that are wanted no longer, and make room for new ones; whether there are any."""
        plans = self._plan(settings)
        for name in [name for name, slot in self._slots.items() if name not in plans or slot.depends != plans[name][0]]:
            self._let_go(self._slots.pop(name))
        new = {name: Slot(name, *plan) for name, plan in plans.items() if name not in self._slots}
        self._slots = {name: self._slots.get(name) or new[name] for name in plans}
        if new:
            self._last, self._running = None, True
            log(f"reports go to {', '.join(self._slots)}.")
        return bool(new)

    def _round(self, settings: Settings, asked: int, *, last: bool) -> None:
        """Hand the report of now to each exporter."""
        if not self._slots:
            return
        if self._reports is None:
            self._reports = Reports(self._folder)
        try:
            snapshot = self._reports.snapshot(time.time_ns(), settings, final=last)
        except UnusableData:
            return  # nothing is recorded yet
        if snapshot is None or snapshot.report == self._last:
            return  # or the run has ended, and that was said
        self._running = snapshot.report.status == "running"
        now = replace(snapshot, final=False)
        for slot in self._slots.values():
            if slot.paced and self._kept != asked:
                self._kept = asked
                self._told()
            sent = slot.export(now)
            if last and slot.paced:
                self._late = [one for one in self._late if one[0] is not slot]
                self._late += [] if sent else [(slot, snapshot)]
        if last and not self._late:
            self._has_said(snapshot)
        self._tell_status()

    def _say_late(self) -> None:
        """Send what had to wait for its turn, though its exporter be wanted no longer; an ask comes first."""
        while self._late:
            slot, snapshot = self._late.pop(0)
            ending = self._ending
            if slot.export(snapshot):
                self._has_said(snapshot)
            elif self._asked != self._sent or self._ending != ending:
                self._late.insert(0, (slot, snapshot))
                return
            self._tell_status(slot)
            if not any(slot is one for one in self._slots.values()):
                slot.close()

    def _has_said(self, snapshot: Snapshot) -> None:
        """A run that has ended is told of once."""
        self._last = snapshot.report if snapshot.report.status != "running" else None

    def _let_go(self, slot: Slot) -> None:
        """Close an exporter that has nothing left to say."""
        if not any(slot is one for one, _ in self._late):
            slot.close()

    def _tell_status(self, late: Slot | None = None) -> None:
        told = {late.name: late.status()} if late is not None else {}
        told |= {name: slot.status() for name, slot in self._slots.items()}
        self._status.exporters = self._status.exporters | told
        self._status.save(self._folder)
