"""How the bytes of a journal get to its file: copied into a mapping, written, or written by another thread.

A :class:`PlainFile` hands each piece to the system. A :class:`MappedFile` copies it into a shared
mapping of the file: no system call, and as safe from a ``kill -9``. A :class:`Background` is a
PlainFile whose calls are made by a thread of its own, because a write to a network mount may take
as long as a server likes; what is queued when the process is killed is lost.

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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from goodput_plugins.core.mounts import MAPPABLE, file_system, is_remote

CHUNK = 256 * 1024
"""How much of a file is reserved and mapped at a time, bytes."""
CLOSING = b"-1]]\n"
"""What ends a line that was left open, after the comma of its last number."""
MOST_QUEUED = 16 * 1024 * 1024
"""How much may wait for a slow mount, bytes; beyond it is lost."""
LAST_WAIT = 2.0
"""How long the exit waits for what is queued, s."""


class PlainFile:
    """Hands each piece to the system. Every method may raise :class:`OSError`; then nothing was written.

    Args:
        path: where the file lies.
        fd: it, open for reading and writing, and empty.
        head: what comes before its first line.

    Attributes:
        lost: how many pieces could not be written since the last that could.
    """

    def __init__(self, path: Path, fd: int, head: bytes) -> None:
        self.path = path
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

    def more(self, piece: bytes) -> None:
        """Make the line that is open longer."""
        try:
            self._put(piece)
        except OSError:
            self.lost += 1
            raise

    def turn(self, path: Path, head: bytes) -> None:
        """Close this file and go on in a new one; if that cannot be made, in this one."""
        fd = make(path)
        with suppress(OSError):
            self.close()
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
        self._length += written


class MappedFile(PlainFile):
    """Copies each piece into a shared mapping of the file.

    Space is reserved before it is mapped, so a full disk is an error that we see and not a SIGBUS in
    training. Where that cannot be had (any more), pieces are written.
    """

    def __init__(self, path: Path, fd: int, head: bytes) -> None:
        super().__init__(path, fd, head)
        self._map: mmap.mmap | None = None
        self._may_map = True
        self._begin = self._at = self._room = 0

    def line(self, piece: bytes) -> None:
        end = self._at + len(piece)
        if end >= self._room or self._unfinished or self.lost:
            super().line(piece)
            return
        assert self._map is not None
        self._map[self._at : end] = piece
        self._at = end
        self._unfinished = piece[-1:] != b"\n"

    def more(self, piece: bytes) -> None:
        end = self._at + len(piece)
        if end >= self._room:
            super().more(piece)
            return
        assert self._map is not None
        self._map[self._at : end] = piece
        self._at = end

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
        before, rest = self._begin + self._at, piece
        try:
            while rest:
                if self._at == self._room:
                    self._map_next()
                assert self._map is not None
                part, rest = rest[: self._room - self._at], rest[self._room - self._at :]
                self._map[self._at : self._at + len(part)] = part
                self._at += len(part)
        except (OSError, ValueError):
            self._unmap()
            self._length = before
            super()._put(piece)

    def _map_next(self) -> None:
        begin = self._begin + self._room
        os.posix_fallocate(self._fd, begin, CHUNK)
        self._map = mmap.mmap(self._fd, CHUNK, offset=begin)
        self._begin, self._at, self._room = begin, 0, CHUNK

    def _unmap(self) -> None:
        """From here on pieces are written."""
        if self._may_map:
            self._length = self._begin + self._at
            self._map = None
            self._may_map = False
            self._begin = self._at = self._room = 0


class Background:
    """A file whose calls are made by a thread of its own, in order; see :class:`PlainFile`.

    Args:
        file: where its thread writes.
        on_error: told, on that thread, what could not be done.

    Raises:
        RuntimeError: there can be no further thread.
    """

    def __init__(self, file: PlainFile, on_error: Callable[[OSError], None]) -> None:
        self.path = file.path
        self._file = file
        self._on_error = on_error
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._given = self._taken = self._lost = 0
        self._skipping = False
        self._there = True
        self._thread = Thread(target=self._work, name="goodput-journal", daemon=True)
        self._thread.start()

    def line(self, piece: bytes) -> None:
        if self._lost:
            piece = b'["lost",0,0,%d]\n' % self._lost + piece
        self._give(piece, self._write_line)
        self._lost = 0

    def more(self, piece: bytes) -> None:
        self._give(piece, self._write_more)

    def turn(self, path: Path, head: bytes) -> None:
        self.path = path
        self._calls.put(partial(self._file.turn, path, head))

    def is_there(self) -> bool:
        """What was last seen; looking may take a server's time, too."""
        self._calls.put(self._look)
        return self._there

    def close(self) -> None:
        """Wait a moment for what is queued.

        Raises:
            OSError: that was not enough.
        """
        self._calls.put(self._file.close)
        self._calls.put(None)
        self._thread.join(LAST_WAIT)
        if self._thread.is_alive():
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def _give(self, piece: bytes, write: Callable[[bytes], None]) -> None:
        if self._given - self._taken > MOST_QUEUED:
            self._lost += 1
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        self._given += len(piece)
        self._calls.put(partial(write, piece))

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except OSError as error:
                self._on_error(error)

    def _write_line(self, piece: bytes) -> None:
        self._taken += len(piece)
        self._skipping = True
        self._file.line(piece)
        self._skipping = False

    def _write_more(self, piece: bytes) -> None:
        self._taken += len(piece)
        if self._skipping:  # the line that this belongs to could not be written
            self._file.lost += 1
            return
        self._skipping = True
        self._file.more(piece)
        self._skipping = False

    def _look(self) -> None:
        self._there = self._file.is_there()


def open_file(path: Path, head: bytes, on_error: Callable[[OSError], None]) -> PlainFile | Background:
    """A new file, written in the way that its file system allows.

    Args:
        path: where; its folder is made if it is not there.
        head: what comes before its first line.
        on_error: told what another thread could not write.

    Raises:
        OSError: it cannot be made.
    """
    fd = make(path)
    kind = file_system(fd)
    if kind in MAPPABLE and hasattr(os, "posix_fallocate"):
        return MappedFile(path, fd, head)
    file = PlainFile(path, fd, head)
    if is_remote(kind):
        with suppress(RuntimeError):  # no further thread can be had
            return Background(file, on_error)
    return file


def make(path: Path) -> int:
    """The descriptor of a new file; its folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
