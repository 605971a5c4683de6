"""Reports of a run that grows, handed to exporters again and again, on a thread of the agent's own.

So a network that is slow holds up neither the log nor the other way round. Each exporter stands for itself: a fault
of one is told once, counted, and tried again at the next round.

::

    metrics = Metrics(folder, settings, plan, status, told=door.wake)
    metrics.start()
    metrics.ask()           # somebody wants the last values: they are sent now
    metrics.finish()        # the run is over: its last word; metrics.is_over() once that is said
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from goodput_plugins.agent.reports import Reports
from goodput_plugins.agent.settings import Settings
from goodput_plugins.agent.slot import Slot
from goodput_plugins.agent.status import Status, log
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.report import Report
from goodput_plugins.exporters import Exporter, Snapshot

LOOK = 1.0
"""Seconds between two looks whether a monitor of the script's wants something else."""
Plan = Mapping[str, tuple[object, Callable[[], Exporter]]]
"""For each exporter what it depends on, and what makes it."""


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
        self._latest: Snapshot | None = None
        self._running = self._is_cut = False
        self._ending = self._ends = False
        self._last_word = True
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

    def finish(self, *, last: bool = True) -> None:
        """Send the run's last word, unless another agent has that, and let go of everything."""
        self._last_word = last
        self._ending = True
        self._wake.set()

    def is_over(self) -> bool:
        """Whether that is done."""
        return not self._thread.is_alive()

    def cut_short(self) -> None:
        """What of the last word has to wait is not waited for."""
        self._is_cut = True
        self._wake.set()

    def nap(self, seconds: float) -> None:
        """Wait on the thread that sends; what is asked for meanwhile ends it."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._is_cut and not self._is_asked():
            self._wake.wait(left)
            self._wake.clear()

    def _is_asked(self) -> bool:
        """Whether something was asked for since this round began."""
        return (self._asked, self._ending) != (self._sent, self._ends)

    def _run(self) -> None:
        while not self._ends:
            self._ends, asked = self._ending, self._asked
            if not self._ends or self._last_word:
                self._turn(asked)
            if not self._ends:
                self._wake.wait(max(0.0, min(LOOK, self._due - time.monotonic())))
                self._wake.clear()
        for slot in self._slots.values():
            slot.close()
        self._told()

    def _turn(self, asked: int) -> None:
        try:
            self._go_round(asked, last=self._ends or asked != self._sent)
        except Exception as fault:
            self._failed(fault)
        if self._sent != asked or self._kept != asked:
            self._kept = self._sent = asked
            self._told()
        if self._ends:
            self._close_quick()
        else:
            self._try_again()
        self._say_late()

    def _go_round(self, asked: int, *, last: bool) -> None:
        """Send if it is time for it."""
        settings = self._settings()
        self._due = min(self._due, time.monotonic() + settings.interval)
        if self._take_up(settings) or last or time.monotonic() >= self._due:
            self._due = time.monotonic() + settings.interval
            self._round(settings, asked, last=last)

    def _close_quick(self) -> None:
        """Let go of exporters that have had their last word: others wait for a port, while these wait for a network."""
        for slot in self._slots.values():
            if not slot.paced:
                slot.close()

    def _try_again(self) -> None:
        """Hand the newest report to exporters whose port was held by another process."""
        again = [slot for slot in self._slots.values() if slot.again_at <= time.monotonic()]
        for slot in again:
            if self._latest is not None:
                slot.export(self._latest)
        if again:
            self._tell_status()

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
        self._latest = now = replace(snapshot, final=False)
        taken = not self._running and not settings.windows  # which go on to change
        for slot in self._slots.values():
            if slot.paced and self._kept != asked:
                self._kept = asked
                self._told()
            if slot.paced and self._ends:
                self._close_quick()
            sent = slot.export(now)
            taken &= sent if slot.paced else not slot.fails
            if last and slot.paced:
                self._late = [one for one in self._late if one[0] is not slot]
                self._late += [] if sent else [(slot, snapshot)]
        if taken or (last and not self._late):
            self._has_said(snapshot)
        self._tell_status()

    def _say_late(self) -> None:
        """Send what had to wait for its turn, though its exporter be wanted no longer; an ask comes first."""
        while self._late:
            slot, snapshot = self._late.pop(0)
            if slot.export(snapshot):
                self._has_said(snapshot)
            elif self._is_asked():
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
