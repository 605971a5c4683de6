"""The journal: an append-only file of lines that a ``kill -9`` does not take.

Bytes are copied into a shared memory mapping of the file, so an event is safe in the page cache the
moment the call returns, without a system call on the training thread. Space is reserved before it
is mapped, so a full disk is an error that we see and not a SIGBUS in training. Where that cannot be
had, bytes are written through with ``os.write``.

A line may be left open and extended, as a run of steps is; the next whole line closes it. A process
that is killed leaves its last line open, and up to one chunk of NUL bytes after it: readers skip
the one and mend the other.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections import deque
from pathlib import Path

from goodput_plugins.core.guard import say

CHUNK = 256 * 1024
"""How much of the file is reserved and mapped at a time, bytes."""
PATIENCE = 0.001
"""How long to wait for another thread's memory copy, s; only a signal handler ever waits that long."""
CLOSING = b"-1]]\n"
"""What ends a line that was left open, after the comma of its last number."""


class Journal:
    """One file of lines; any thread may write, also a signal handler.

    The thread that holds the lock writes the lines of all. It holds it for a memory copy, so another
    thread waits microseconds; a signal handler that interrupted the holder leaves its line to it.

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
        self._open_line = 0
        self._opened = 0
        self._map: mmap.mmap | None = None
        self._mapped_to = 0
        self._at = CHUNK
        self._length = 0
        self._can_map = hasattr(os, "posix_fallocate")

    def write(self, line: bytes) -> None:
        """Append one line (newline included). Never raises; a line that finds no room is counted."""
        self._lines.append(line)
        if self._take_lock():
            try:
                self._drain()
            finally:
                self._lock.release()

    def open_line(self, head: bytes) -> int:
        """Append the beginning of a line, up to and including a comma in its last list.

        Returns:
            What :meth:`extend` knows it by; 0 if the journal is busy, and then nothing was written.
        """
        if not self._take_lock():
            return 0
        try:
            self._drain()
            self._close_line()
            self._opened += 1
            self._open_line = self._opened
            self._store(head)
            return self._opened
        finally:
            self._lock.release()

    def extend(self, line: int, more: bytes) -> bool:
        """Append to that open line, up to and including a comma; False if another line closed it since."""
        if line != self._open_line or not self._take_lock():
            return False
        try:
            if line != self._open_line or self._lines:
                return False
            self._store(more)
            return True
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
        self._lock = threading.Lock()
        self._open_line = 0
        self._map = None
        self._can_map = False
        self._store = self._drop  # type: ignore[method-assign]

    def remove(self) -> None:
        """Close the journal and delete its file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _take_lock(self) -> bool:
        return self._lock.acquire(blocking=False) or self._lock.acquire(timeout=PATIENCE)

    def _drain(self) -> None:
        while self._lines:
            self._close_line()
            self._store(self._lines.popleft())

    def _close_line(self) -> None:
        if self._open_line:
            self._open_line = 0
            self._store(CLOSING)

    def _store(self, piece: bytes) -> None:
        try:
            if len(piece) > CHUNK:
                raise OSError(errno.EMSGSIZE, "a line of more than 256 KB")
            if self._can_map:
                self._copy(piece)
            else:
                os.pwrite(self._fd, piece, self._length)
                self._length += len(piece)
        except OSError as error:
            self._failed(error)
            self.dropped += 1

    def _copy(self, piece: bytes) -> None:
        end = self._at + len(piece)
        if end > CHUNK:
            if not self._map_next_chunk():
                self._store(piece)
                return
            end = self._at + len(piece)
        assert self._map is not None
        self._map[self._at : end] = piece
        self._at = end
        self._length = self._mapped_to - CHUNK + end

    def _map_next_chunk(self) -> bool:
        """Reserve and map the next chunk; False if this file system cannot (then we write)."""
        try:
            os.posix_fallocate(self._fd, self._mapped_to, CHUNK)
            self._map = mmap.mmap(self._fd, CHUNK, offset=self._mapped_to)
        except (OSError, ValueError) as error:
            self._can_map = False
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
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

    def _drop(self, piece: bytes) -> None:
        if piece:
            self.dropped += 1
