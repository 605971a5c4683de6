"""What other machines recorded of a run, fetched once onto an empty disk.

Its attempts are written down as the journals that they were, so that ``goodput report`` here tells of
the whole run. They are never sent again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from goodput_plugins.agent.position import Positions, replace
from goodput_plugins.agent.status import log
from goodput_plugins.core.compact import Attempts
from goodput_plugins.core.journal_reading import by_segment
from goodput_plugins.core.rundir import SUFFIX
from goodput_plugins.exporters.cloud_logging_reading import Reading
from goodput_plugins.exporters.errors import Unreached

PLACE = "agent.history"
"""Where pages are kept until all are there, in the run's directory."""
INTERVAL = 4.8
"""Seconds between two pages."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,200}", re.A)


class History:
    """Fetches a page each time it is called, until there is none.

    Args:
        folder: the run's directory.
        positions: what was sent from here.
        make_reading: of the run's log, kept in the given folder.
    """

    interval = INTERVAL

    def __init__(self, folder: Path, positions: Positions, make_reading: Callable[[Path], Reading]) -> None:
        self._folder = folder
        self._positions = positions
        self._make_reading = make_reading
        self._reading: Reading | None = None

    def __call__(self) -> None:
        """Fetch the next page, or put the journals in their place."""
        if self._positions.has_history:
            return
        try:
            if self._reading is None:
                self._reading = self._make_reading(self._folder / PLACE)
            if self._reading.next_page():
                return
            found = self._restore(self._reading.path)
        except Unreached as error:
            if not error.slow:
                return
            found = 0
            log(f"the run's history cannot be read: {error}; what other machines recorded is in the log only.")
        except OSError as error:
            found = 0
            log(f"the run's history cannot be kept ({error}).")
        self._close(found)

    def unsent(self) -> int:
        return 0

    def _close(self, found: int) -> None:
        if found:
            log(f"{found} attempts that other machines recorded were fetched.")
        if self._reading is not None:
            self._reading.close()
        shutil.rmtree(self._folder / PLACE, ignore_errors=True)
        self._positions.has_history = True
        with suppress(OSError):
            self._positions.save()

    def _restore(self, entries: Path) -> int:
        """Write the journals of attempts that are not here; how many attempts those are."""
        attempts = Attempts()
        with entries.open() as lines:
            for line in lines:
                attempts.add(json.loads(line).get("jsonPayload") or {})
        here = {by_segment(path)[0] for path in self._folder.glob(f"*{SUFFIX}")}
        files = [file for file in attempts.files() if file[0] not in here and _NAME.fullmatch(file[0])]
        new = {attempt for attempt, _, _ in files}
        self._positions.received |= new
        self._positions.save()
        for attempt, segment, data in files:
            replace(self._folder / (attempt + (f".{segment:03}" if segment else "") + SUFFIX), data)
        return len(new)
