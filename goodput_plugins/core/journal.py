"""The journal: an append-only file of lines that a ``kill -9`` does not take.

A line may be left open and extended, as a run of steps is; the next whole line closes it. A process
that is killed leaves its last line open, and up to one chunk of NUL bytes after it: readers skip
the one and mend the other. How the bytes get to the disk is the business of
:mod:`~goodput_plugins.core.files` and :mod:`~goodput_plugins.core.background`.

At 64 MB a journal goes on in a further file, a segment, of the same attempt::

    20261129T080000.000000000Z-1a2b3c4d.jsonl          {"schema": ..., "attempt": ..., "segment": 0, ...}
    20261129T080000.000000000Z-1a2b3c4d.001.jsonl      {"schema": ..., "attempt": ..., "segment": 1, ...}

It does so too where its file was deleted under it. Beyond a size in all it is :attr:`~Journal.full`:
lines still go in, but whoever writes is asked to write less.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from goodput_plugins.core.background import Background, open_file
from goodput_plugins.core.files import PlainFile
from goodput_plugins.core.guard import say

SEGMENT = 64 * 1024 * 1024
"""How large a segment grows, bytes."""
MOST = 2_000_000_000
"""How large a journal grows before it is full, bytes."""
LAST_WAIT = 2.0
"""How long closing waits for another thread that writes, s."""


class OpenLine:
    """A line that may be extended until the journal's next one begins.

    Attributes:
        lock: the journal's, to be held meanwhile.
        more: appends to it; None once it is closed.
    """

    __slots__ = ("_failed", "lock", "more")

    def __init__(
        self, lock: threading.RLock, more: Callable[[bytes], object], failed: Callable[[OSError], None]
    ) -> None:
        self.lock = lock
        self.more: Callable[[bytes], object] | None = more
        self._failed = failed

    def extend(self, piece: bytes) -> bool:
        """Append, up to and including a comma; False if it cannot be: begin another line."""
        try:
            with self.lock:
                if self.more is None:
                    return False
                self.more(piece)
        except (OSError, ValueError) as error:
            self.broke(error)
            return False
        return True

    def broke(self, error: OSError | ValueError) -> None:
        """What was to be appended found no room, or this is no place for it."""
        self.more = None
        if isinstance(error, OSError):
            self._failed(error)


class Journal:
    """Lines of one attempt; any thread may write, also a signal handler.

    Only memory is copied while the lock is held, so another thread waits microseconds. A signal
    handler that interrupts the holder leaves its line to it.

    Args:
        path: the first segment, made anew; its folder is made if it is not there.
        header: what each segment begins with, beside its number.
        segment: how large a segment grows, bytes.
        most: how large the journal grows before it is full, bytes.

    Attributes:
        paths: its segments, oldest first.
        dropped: how many pieces could not be written.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(
        self, path: Path, header: Mapping[str, object] | None = None, *, segment: int = SEGMENT, most: float = MOST
    ) -> None:
        self.paths = [path]
        self.dropped = 0
        self._header = header
        self._file: PlainFile | Background | _Nowhere = open_file(path, self._first_line(0), segment, self._failed)
        self._most = most
        self._lock = threading.RLock()
        self._writing = False
        self._late: deque[bytes] = deque()
        self._open_line: OpenLine | None = None
        self._earlier = 0
        self.write(b"")

    @property
    def path(self) -> Path:
        """The segment that is being written."""
        return self.paths[-1]

    @property
    def full(self) -> bool:
        """Whether it has grown so large that steps should be told in sum."""
        return self._earlier + self._file.length >= self._most

    def write(self, line: bytes) -> None:
        """Append one line (newline included). Never raises; a line that finds no room is counted."""
        with self._lock:
            if self._writing:
                self._late.append(line)
                self._close_line()
                return
            self._writing = True
            try:
                self._close_line()
                if self._late or self._file.due:
                    self._tidy()
                self._file.line(line)
            except OSError as error:
                self._failed(error)
            finally:
                self._writing = False

    def open_line(self, head: bytes) -> OpenLine | None:
        """Append the beginning of a line, up to and including a comma in its last list; None if it cannot be now."""
        with self._lock:
            if self._writing:
                return None
            self._writing = True
            try:
                self._close_line()
                if self._late or self._file.due:
                    self._tidy()
                self._file.line(head)
                self._open_line = OpenLine(self._lock, self._file.more, self._failed)
                return self._open_line
            except OSError as error:
                self._failed(error)
                return None
            finally:
                self._writing = False

    def tend(self) -> None:
        """Go on in a new segment if the file was deleted; to be called now and then, off the training thread."""
        if self._file.is_there():
            return
        with self._lock:
            gone, turned = self.path, not self._writing and self._turn()
        if turned:
            say(
                f"the journal {gone} was deleted while it was being written; what it held is gone.",
                f"Training goes on, and so does recording, in {self.path.name}.",
            )

    def close(self) -> None:
        """Write what is queued and cut the file to its length."""
        try:
            if not self._lock.acquire(timeout=LAST_WAIT):
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            try:
                self._tidy()
                self._file.close()
            finally:
                self._lock.release()
        except OSError as error:
            self._failed(error)
        self.abandon()

    def abandon(self) -> None:
        """Stop writing and leave the file as it is, as a forked child must."""
        self._lock = threading.RLock()
        self._writing = False
        self._close_line()
        self._file = _Nowhere()

    def remove(self) -> None:
        """Close the journal and delete its files."""
        self.close()
        for path in self.paths:
            path.unlink(missing_ok=True)

    def _close_line(self) -> None:
        line, self._open_line = self._open_line, None
        if line is not None:
            line.more = None

    def _tidy(self) -> None:
        """Write what came late, and go on in a new segment where this one is large enough."""
        if self._file.due:
            self._turn()
        while self._late:
            self._file.line(self._late.popleft())

    def _turn(self) -> bool:
        """Go on in a new segment; where there can be none, in this one."""
        number = len(self.paths)
        path = self.paths[0].with_suffix(f".{number:03}{self.paths[0].suffix}")
        self._close_line()
        size = self._file.length
        try:
            self._file.turn(path, self._first_line(number))
        except OSError as error:
            self._failed(error)
            return False
        self.paths.append(path)
        self._earlier += size
        return True

    def _first_line(self, segment: int) -> bytes:
        if self._header is None:
            return b""
        return json.dumps({**self._header, "segment": segment}).encode() + b"\n"

    def _failed(self, error: OSError) -> None:
        self.dropped += 1
        if self.dropped == 1:
            say(
                f"the journal {self.path} cannot be written ({error.strerror or error}).",
                "Training goes on; what finds no room is not recorded. Free the disk or set GOODPUT_DIR.",
            )


class _Nowhere:
    """The file of a journal that is over."""

    length = 0
    due = False

    def line(self, piece: bytes) -> None:
        pass

    def more(self, piece: bytes) -> None:
        pass

    def turn(self, path: Path, head: bytes) -> None:
        pass

    def is_there(self) -> bool:
        return True

    def close(self) -> None:
        pass
