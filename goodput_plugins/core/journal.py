"""The journal: an append-only file of lines that a ``kill -9`` does not take.

Lines are copied into a shared memory mapping of the file, so an event is safe in the page cache the
moment :meth:`Journal.write` returns, without a system call on the training thread. Space is
reserved before it is mapped, so a full disk is an error that we see and not a SIGBUS in training.
Where that cannot be had, lines are written through with ``os.write``.

A process that is killed leaves up to one chunk of NUL bytes after its last line; readers skip them.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from pathlib import Path

from goodput_plugins.core.guard import say

CHUNK = 256 * 1024
"""How much of the file is reserved and mapped at a time, bytes."""


class Journal:
    """One file of lines; any thread may write, also a signal handler.

    Args:
        path: the file, made anew; its folder is made if it is not there.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.dropped = 0
        """Lines that could not be written."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._lines: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        self._mapped_to = 0
        self._at = CHUNK
        self._length = 0
        self._can_map = hasattr(os, "posix_fallocate")

    def write(self, line: bytes) -> None:
        """Append one line (newline included). Never raises; a line that finds no room is counted.

        The thread that holds the lock writes the lines of all. It is held for a memory copy, so
        another thread waits microseconds; a signal handler that interrupted the holder itself
        leaves its line to it.
        """
        self._lines.append(line)
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=0.001):
            return
        try:
            while self._lines:
                self._store(self._lines.popleft())
        finally:
            self._lock.release()

    def close(self) -> None:
        """Write what is queued and cut the file to its length."""
        self.write(b"")
        self.abandon()
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, self._length)
                os.close(self._fd)
            except OSError as error:
                self._failed(error)
            self._fd = -1

    def abandon(self) -> None:
        """Stop writing and leave the file as it is, as a forked child must."""
        self._map = None
        self._can_map = False
        self._store = self._drop  # type: ignore[method-assign]

    def remove(self) -> None:
        """Close the journal and delete its file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _store(self, line: bytes) -> None:
        try:
            if self._can_map:
                self._copy(line)
            else:
                os.pwrite(self._fd, line, self._length)
                self._length += len(line)
        except OSError as error:
            self._failed(error)
            self.dropped += 1

    def _copy(self, line: bytes) -> None:
        end = self._at + len(line)
        if end > CHUNK:
            if not self._map_next_chunk():
                self._store(line)
                return
            end = self._at + len(line)
        assert self._map is not None
        self._map[self._at : end] = line
        self._at = end
        self._length = self._mapped_to - CHUNK + end

    def _map_next_chunk(self) -> bool:
        """Reserve and map the next chunk; False if this file system cannot (then we write)."""
        try:
            os.posix_fallocate(self._fd, self._mapped_to, CHUNK)
            self._map = mmap.mmap(self._fd, CHUNK, offset=self._mapped_to)
        except (OSError, ValueError) as error:
            self._can_map = False
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise
            return False
        self._mapped_to += CHUNK
        self._at = 0
        return True

    def _failed(self, error: OSError) -> None:
        if self.dropped == 0:
            say(
                f"the journal {self.path} cannot be written ({error.strerror or error}).",
                "Training goes on; what happens from here on is not recorded. Free the disk or set GOODPUT_DIR.",
            )

    def _drop(self, line: bytes) -> None:
        if line:
            self.dropped += 1


_NO_ROOM = (28, 122)
"""ENOSPC, EDQUOT."""
