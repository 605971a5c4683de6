"""How the bytes of a journal get to its file: written, or copied into a mapping of it.

A :class:`PlainFile` hands each piece to the system. A :class:`MappedFile` copies it into a shared
mapping of the file: no system call, and as safe from a ``kill -9``. (What a thread of its own writes,
because a network may take its time, is in :mod:`~goodput_plugins.core.background`.)

Each takes lines, and what makes a line longer that was left open::

    file.line(b'["r",1780000000000000000,0,1,null,null,null,[0,')
    file.more(b'0,0,1000000,')
    file.line(b'["h",1780000000500000000]\\n')        # ends the open line first
    file.turn(next_path)                              # from here on into another file
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from math import inf
from pathlib import Path

CHUNK = 256 * 1024
"""How much of a file is reserved and mapped at a time, bytes."""
CLOSING = b"-1]]\n"
"""What ends a line that was left open, after the comma of its last number."""


class PlainFile:
    """Hands each piece to the system. Every method may raise :class:`OSError`; then nothing was written.

    Args:
        path: where the file lies.
        fd: it, open for reading and writing, and empty.
        head: what comes before its first line.
        limit: beyond this size another file is due, bytes.

    Attributes:
        due: another file is.
        lost: how many pieces could not be written since the last that could.
    """

    def __init__(self, path: Path, fd: int, head: bytes, limit: float = inf) -> None:
        self.path = path
        self.due = False
        self._limit = self._each = limit
        self._head = head
        self._fd = fd
        self._identity = _identity(os.fstat(fd))
        self._length = 0
        self._unfinished = False
        self.lost = 0

    def line(self, piece: bytes) -> None:
        """Append a line, or the beginning of one that more will follow."""
        if self._unfinished or self.lost or self._head:
            piece = self._mended(piece)
        try:
            self._put(piece)
        except OSError:
            self.lost += 1
            raise
        self._unfinished = piece[-1:] not in (b"\n", b"")
        self._head = b""
        self.lost = 0

    @property
    def length(self) -> int:
        """How much it holds, bytes."""
        return self._length

    def more(self, piece: bytes) -> None:
        """Make the line that is open longer.

        Raises:
            ValueError: this is no place for it; another line is to be begun.
        """
        try:
            self._put(piece)
        except OSError:
            self.lost += 1
            raise
        self._unfinished = piece[-1:] != b"\n"

    def turn(self, path: Path, head: bytes) -> None:
        """Close this file and go on in a new one; if that cannot be made, in this one."""
        self.due, self._limit = False, self.length + self._each
        fd = make(path)
        with suppress(OSError):
            self.close()
        self._limit = self._each
        self._fd, self._identity = fd, _identity(os.fstat(fd))
        self.path, self._head, self._length, self._unfinished = path, head, 0, False

    def is_there(self) -> bool:
        """Whether the file still lies where it was made."""
        try:
            return _identity(os.stat(self.path)) == self._identity
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """End the open line, cut the file to its length and close it."""
        if self._fd < 0:
            return
        try:
            if self._unfinished or self.lost:
                self.line(b"")
        finally:
            fd, self._fd = self._fd, -1
            try:
                os.ftruncate(fd, self._length)
            finally:
                os.close(fd)

    def _mended(self, piece: bytes) -> bytes:
        """The piece, after what has to come before it: the file's head, an open line's end, word of what was lost."""
        before = self._head + (CLOSING if self._unfinished else b"")
        if self.lost:
            before += b'["lost",0,0,%d]\n' % self.lost
        return before + piece

    def _put(self, piece: bytes) -> None:
        written = os.pwrite(self._fd, piece, self._length)
        if written < len(piece):  # the next piece takes its place
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        before, self._length = self._length, self._length + written
        if before < self._limit <= self._length:
            self.due = True


class MappedFile(PlainFile):
    """Copies each piece into a shared mapping of the file.

    Space is reserved before it is mapped, so a full disk is an error that we see and not a SIGBUS in
    training. Where that cannot be had (any more), pieces are written.
    """

    def __init__(self, path: Path, fd: int, head: bytes, limit: float = inf) -> None:
        super().__init__(path, fd, head, limit)
        self._map: mmap.mmap | None = None
        self._may_map = True
        self._begin = 0

    @property
    def length(self) -> int:
        return self._begin + self._map.tell() if self._map is not None else self._length

    def line(self, piece: bytes) -> None:
        if self._unfinished or self.lost or self._map is None:
            super().line(piece)
            return
        try:
            self._map.write(piece)  # one call, so that no signal handler and no other thread comes in between
        except ValueError:
            super().line(piece)
            return
        self._unfinished = piece[-1:] != b"\n"

    def turn(self, path: Path, head: bytes) -> None:
        super().turn(path, head)
        self._may_map = True

    def close(self) -> None:
        self._unmap()
        super().close()

    def _put(self, piece: bytes) -> None:
        """Copy into this chunk what it has room for and the rest into the next ones."""
        if not self._may_map:
            super()._put(piece)
            return
        before, rest = self.length, piece
        try:
            while rest:
                room = 0 if self._map is None else CHUNK - self._map.tell()
                if not room:
                    self._map_next()
                elif self._map is not None:
                    self._map.write(rest[:room])
                    rest = rest[room:]
        except (OSError, ValueError):
            self._unmap()
            self._length = before
            super()._put(piece)

    def _map_next(self) -> None:
        begin = 0 if self._map is None else self._begin + CHUNK
        os.posix_fallocate(self._fd, begin, CHUNK)
        self._map = mmap.mmap(self._fd, CHUNK, offset=begin)
        self._begin = begin
        self.due |= begin - CHUNK < self._limit <= begin
        self.more = self._map.write  # type: ignore[method-assign, assignment]

    def _unmap(self) -> None:
        """From here on pieces are written."""
        self._length, self._map, self._may_map, self._begin = self.length, None, False, 0
        self.__dict__.pop("more", None)


def make(path: Path) -> int:
    """The descriptor of a new file; its folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
