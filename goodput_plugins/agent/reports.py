"""A run's reports, made again and again: what is known of it now, and of its rolling windows."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from goodput_plugins.agent.settings import Settings
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.live import Live
from goodput_plugins.core.live.journals import Journals
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report
from goodput_plugins.exporters import Snapshot

SECOND = 1_000_000_000
SELDOM = 20
"""What reads the whole history is done again after so many times of what it took."""
QUICK = 3.0
"""What took longer than this is left out of a last word, s: somebody waits for it."""
STATE = "agent.live.json"
"""Where the report is kept for the next agent, in the run's folder."""


class Reports:
    """The reports of one run.

    Args:
        folder: the run's directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live = Live(Journals(folder), state=folder / STATE)
        self._took = 0.0
        self._read_at = float("-inf")

    def snapshot(self, now: int, settings: Settings, *, final: bool) -> Snapshot | None:
        """What is known now.

        A configured ideal step time needs the whole history, as does a rolling window of more steps than are kept, or
        that was not asked for before. If that was read too recently there is no such window this time; by a
        configured ideal step time there is nothing.

        Raises:
            UnusableData: nothing is recorded yet.
        """
        windows: dict[int, Report] = {}
        if settings.ideal is None:
            self._live.span = max(settings.windows, default=0) * SECOND
            report = self._live.report(now)
            with suppress(OSError):
                self._live.save()
            rolling = self._live.rolling((length * SECOND for length in settings.windows), now)
            windows = {length // SECOND: told for length, told in rolling.items()}
            if windows.keys() == set(settings.windows) or self._is_too_soon(final and self._took < QUICK):
                return Snapshot(now, report, windows, final)
        elif self._is_too_soon(final):
            return None
        begun = time.monotonic()
        whole = min(read(self._folder), key=lambda log: log.run)
        if settings.ideal is not None:
            report = calculate(whole, now=now, ideal=settings.ideal)
        for length in set(settings.windows) - windows.keys():
            with suppress(UnusableData):  # no time of the run lies in it
                window = now - length * SECOND, now
                windows[length] = calculate(whole, now=now, window=window, ideal=settings.ideal)
        self._read_at = time.monotonic()
        self._took = self._read_at - begun
        return Snapshot(now, report, windows, final)

    def _is_too_soon(self, needed: bool) -> bool:
        """Whether the history was read just now, for what it cost, and is not needed now."""
        return not needed and time.monotonic() - self._read_at < SELDOM * self._took
