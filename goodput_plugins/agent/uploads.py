"""The duty of keeping a run's journals in a bucket, where ``GOODPUT_DIR`` names one.

Journals of a run in a bucket turn at a megabyte, so what is uploaded again, as it grows, is small. At
first, what other machines left there is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from goodput_plugins.agent.position import replace
from goodput_plugins.agent.status import Status, log
from goodput_plugins.agent.tail import Tail, filled
from goodput_plugins.exporters.bucket import Bucket

INTERVAL = 9.0
"""Seconds between two looks at the journals."""


class Uploads:
    """Keeps one run's journals in a bucket.

    Args:
        folder: the run's directory.
        bucket: where the runs lie.
        tail: of the journals; knows which of them will stay.
        status: what counts them.
        clock: seconds, never stepping back.
    """

    interval = INTERVAL

    def __init__(
        self, folder: Path, bucket: Bucket, tail: Tail, status: Status, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._bucket = bucket
        self._tail = tail
        self._status = status
        self._clock = clock
        self._there: dict[str, int] | None = None

    def __call__(self) -> None:
        """Upload every journal that has grown."""
        if self._there is None:
            self._there = self._fetched()
        for path in self._tail.journals(self._clock()):
            length = filled(path)
            if length > self._there.get(path.name, 0):
                with path.open("rb") as file:
                    self._bucket.put(f"{self._folder.name}/{path.name}", file.read(length))
                self._there[path.name] = length
                self._status.uploads += 1

    def unsent(self) -> int:
        there = self._there or {}
        journals = self._tail.journals(self._clock())
        return sum(max(0, filled(path) - there.get(path.name, 0)) for path in journals)

    def _fetched(self) -> dict[str, int]:
        """What lies in the bucket, once all of it lies here, too."""
        there = {Path(path).name: size for path, size in self._bucket.sizes(self._folder.name).items()}
        missing = [name for name in there if not (self._folder / name).exists()]
        for name in missing:
            replace(self._folder / name, self._bucket.get(f"{self._folder.name}/{name}"))
        if missing:
            log(f"{len(missing)} journals that other machines recorded were fetched.")
        return there
