"""The agent's round: whatever is due is done, until the run is over and everything is sent.

It goes on while the run's trainer lives, then sends the rest and ends. Where nothing can be sent it tries
ever more seldom, and leaves the rest to the next agent in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from goodput_plugins.agent.door import Door
from goodput_plugins.agent.duties import Duty, Turn
from goodput_plugins.agent.status import Status, log
from goodput_plugins.agent.tail import newest
from goodput_plugins.core.attribution.generations import ALIVE_NS

PAUSE = 4.8
"""Seconds between two looks whether the run goes on, at most."""
ASKED = 0.5
"""Seconds between two tries while somebody waits for them."""
ASKED_FOR = 10.0
"""Nobody waits longer, s."""
SILENT = 15.0
"""A trainer of which nothing is seen for so long is over, s: its heart beats every 5 s."""
LOST = ALIVE_NS / 1e9 + 1.0
"""So long it waits if reports still tell that the run goes on, s: it is lost when its last sign is older than that."""
GIVE_UP = 3600.0
"""So long after the trainer's end what cannot be sent is left to the next agent, s."""
LAST_WORD = 25.0
"""So long a run's last word may take: Cloud Monitoring takes a point each 10 s, s."""
HASTE = 5.0
"""And so long where another agent has it, s."""
LEAVE = 20.0
"""So long after it was told to go the agent goes, though the trainer lives, s."""


class Reports(Protocol):
    """What sends reports, beside; see :class:`goodput_plugins.agent.metrics.Metrics`."""

    def start(self) -> None: ...
    def ask(self) -> None: ...
    def is_kept(self) -> bool: ...
    def is_sent(self) -> bool: ...
    def is_running(self) -> bool: ...
    def finish(self, *, last: bool) -> None: ...
    def is_over(self) -> bool: ...
    def cut_short(self) -> None: ...


class Agent:
    """Serves one run.

    Args:
        folder: the run's directory.
        duties: what is to be done.
        door: where others ask for it.
        status: how it does, as it tells others.
        trainer_lives: whether a living process holds the run.
        stay: go on after the trainer's end, for the next one.
        reports: what sends reports meanwhile, if any are to be sent.
        more: what else is to be done from now on, asked each round.
        clock: seconds, never stepping back.
    """

    def __init__(
        self,
        folder: Path,
        duties: Sequence[Duty],
        door: Door,
        status: Status,
        *,
        trainer_lives: Callable[[], bool],
        stay: bool = False,
        reports: Reports | None = None,
        more: Callable[[], Sequence[Duty]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._turns = [Turn(duty) for duty in duties]
        self._door = door
        self._status = status
        self._trainer_lives = trainer_lives
        self._stay = stay
        self._reports = reports
        self._more = more
        self._heard = 0
        self._clock = clock
        self._told: tuple[object, ...] = ()
        self._seen: tuple[str, int] | None = None
        self._alive_at = clock()
        self._asked_at = 0.0
        self._leave_at = float("inf")
        self._hands_over = self._rests = False
        self._knocks = 0

    def hand_over(self) -> None:
        """Go once everything was tried: another agent stands by, and goes on with what is left."""
        self._hands_over = True
        self.leave()

    def leave(self) -> None:
        """Go when the trainer has gone, or another agent stands by, or soon."""
        self._knocks = self._door.knocks
        self._leave_at = min(self._leave_at, self._clock() + LEAVE)
        self._door.wake()

    def run(self) -> None:
        """Go round until there is nothing left to do."""
        if self._reports is not None:
            self._reports.start()
        while True:
            all_done = self.round()
            if self._is_over(all_done):
                break
            self._wait()
        self._say_last_word()
        self._status.state = "done"
        self._status.unsent = sum(turn.duty.unsent() for turn in self._turns)
        self._status.save(self._folder)
        sums = "; ".join(self._status.sums())
        log(f"done: {sums}." if sums else "done.")

    def _say_last_word(self) -> None:
        """Wait until it is said, once; an agent that stands by meanwhile has newer ones to say."""
        reports, self._reports = self._reports, None
        if reports is None:
            return
        reports.finish(last=not self._hands_over)
        until = self._clock() + (HASTE if self._hands_over else LAST_WORD)
        knocks = self._door.knocks
        while not reports.is_over() and self._clock() < until:
            self._door.wait(ASKED)
            if self._door.knocks != knocks:
                reports.cut_short()

    def round(self) -> bool:
        """Do what is due; whether everything is done."""
        hurry = bool(self._door.waiting) or self._leave_at < float("inf")
        self._ask_for_values()
        self._turns += map(Turn, self._more())
        for turn in self._turns:
            if not (self._hands_over and turn.error):  # a network that does not answer is the next agent's
                turn.go(self._clock(), asked=hurry)
        failed = [turn for turn in self._turns if turn.error]
        if any(turn.slow for turn in failed):
            self._door.answer(sent=False)
        elif not failed and not self._goes_on() and (self._reports is None or self._reports.is_kept()):
            self._door.answer(sent=True)
        if self._reports is None or self._reports.is_sent():
            self._door.show()
        self._tell(failed)
        return not failed and not self._goes_on()

    def _goes_on(self) -> bool:
        """Whether there was more to do than there is time for at once."""
        return any(turn.goes_on for turn in self._turns)

    def _ask_for_values(self) -> None:
        """Who asks, or goes, wants the last values."""
        asked = self._door.asked + (self._leave_at < float("inf"))
        if self._reports is not None and asked != self._heard:
            self._heard = asked
            self._reports.ask()

    def _tell(self, failed: Sequence[Turn]) -> None:
        """Put down how it does, if that has changed."""
        status = self._status
        status.state = "failing" if failed else "shipping"
        status.error = failed[0].error if failed else ""
        status.unsent = sum(turn.duty.unsent() for turn in failed)
        told = (status.state, status.error, status.unsent, status.entries, status.dropped, status.uploads)
        if told != self._told:
            self._told = told
            status.save(self._folder)

    def _wait(self) -> None:
        waiting = self._door.is_waited_at
        if waiting and self._clock() - self._asked_at > ASKED_FOR:
            self._door.waiting.clear()
            self._door.show()
            waiting = False
        now = self._clock()
        pause = min((turn.pause(now) for turn in self._turns), default=PAUSE)
        self._door.wait(min(pause, ASKED) if waiting or self._leave_at < float("inf") else pause)
        if self._door.is_waited_at and not waiting:
            self._asked_at = self._clock()

    def _is_tried(self, all_done: bool) -> bool:
        """Whether all that can be sent by now is; a backlog is the next agent's."""
        failed = any(turn.error for turn in self._turns)
        return failed or self._goes_on() or (all_done and (self._reports is None or self._reports.is_kept()))

    def _is_over(self, all_done: bool) -> bool:
        """Whether there is nothing left to do, or no time for it."""
        now, grown = self._clock(), newest(self._folder)
        self._hands_over |= (self._rests or self._leave_at < float("inf")) and self._door.knocks > self._knocks
        if grown != self._seen or self._trainer_lives():
            self._seen, self._alive_at = grown, now
        if now >= self._leave_at or (self._hands_over and self._is_tried(all_done)):
            return True
        silent = now - self._alive_at
        if self._stay and self._leave_at == float("inf"):
            return False
        if silent < (LOST if self._reports is not None and self._reports.is_running() else SILENT):
            return False
        if all_done:
            return True
        self._rest()
        return silent >= GIVE_UP and not self._goes_on()

    def _rest(self) -> None:
        """The run is over, and something cannot be sent: go on with that alone, until another agent stands by."""
        if not self._rests:
            self._rests, self._knocks = True, self._door.knocks
            self._say_last_word()
