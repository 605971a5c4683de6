"""A journal's file across a network: written by a thread of its own, so that no server holds up training.

A write may take as long as a server likes, so the training thread only puts pieces into a queue. What
still waits there when the process is killed is lost; so is what finds the queue full, and that is told.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from goodput_plugins.core.files import CLOSING, MappedFile, PlainFile, make
from goodput_plugins.core.mounts import MAPPABLE, file_system, is_remote

MOST_QUEUED = 16 * 1024 * 1024
"""How much may wait, bytes."""
AT_ONCE = 256 * 1024
"""How much is written at a time, bytes, where so much waits."""
LAST_WAIT = 2.0
"""How long the exit waits for what is queued, s."""


class _Line(bytes):
    """A piece that begins a line; plain bytes go on with one."""


class Background:
    """A file whose calls are made by a thread of its own, in order; see :class:`PlainFile`.

    Args:
        file: where its thread writes.
        limit: beyond this size another file is due, bytes.
        on_error: told, on that thread, what could not be done.

    Raises:
        RuntimeError: there can be no further thread.
    """

    def __init__(self, file: PlainFile, limit: float, on_error: Callable[[OSError], None]) -> None:
        self.path = file.path
        self.due = False
        self._limit = limit
        self._file = file
        self._on_error = on_error
        self._calls: SimpleQueue[bytes | Callable[[], None]] = SimpleQueue()
        self._given = self._taken = self._lost = self._earlier = 0
        self._unfinished = self._skipping = self._over = False
        self._there = True
        self._thread = Thread(target=self._work, name="goodput-journal", daemon=True)
        self._thread.start()

    @property
    def length(self) -> int:
        """How much it holds once all is written, bytes."""
        return self._given - self._earlier

    def line(self, piece: bytes) -> None:
        if self._unfinished:
            self._give(CLOSING)
        if self._lost:
            piece = b'["lost",0,0,%d]\n' % self._lost + piece
        self._give(_Line(piece))
        self._lost = 0
        self._unfinished = piece[-1:] not in (b"\n", b"")

    def more(self, piece: bytes) -> None:
        self._give(piece)

    def turn(self, path: Path, head: bytes) -> None:
        self.path = path
        self._unfinished = False
        self._earlier = self._given
        self.due = False
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
        self._calls.put(self._close)
        self._thread.join(LAST_WAIT)
        if self._thread.is_alive():
            raise _too_slow()

    def _give(self, piece: bytes) -> None:
        if self._given - self._taken > MOST_QUEUED:
            self._lost += 1
            raise _too_slow()
        self._given += len(piece)
        self._calls.put(piece)
        self.due = self.length >= self._limit

    def _work(self) -> None:
        call: bytes | Callable[[], None] | None = None
        while not self._over:
            call = self._calls.get()
            try:
                if isinstance(call, bytes):
                    call = self._write(call)
                if call is not None:
                    call()
            except OSError as error:
                self._on_error(error)

    def _write(self, first: bytes) -> Callable[[], None] | None:
        """Write a piece and those that wait behind it; what was found that is none."""
        pieces, size, call = [first], len(first), None
        while size < AT_ONCE and call is None:
            try:
                found = self._calls.get_nowait()
            except Empty:
                break
            if isinstance(found, bytes):
                pieces.append(found)
                size += len(found)
            else:
                call = found
        try:
            self._put(pieces)
        except OSError as error:
            self._file.lost += len(pieces) - 1
            self._on_error(error)
        self._taken += size
        return call

    def _put(self, pieces: list[bytes]) -> None:
        while self._skipping and pieces and not isinstance(pieces[0], _Line):
            del pieces[0]  # the line that it belongs to could not be written
            self._file.lost += 1
        if not pieces:
            return
        self._skipping = True
        write = self._file.line if isinstance(pieces[0], _Line) else self._file.more
        write(b"".join(pieces))
        self._skipping = False

    def _look(self) -> None:
        self._there = self._file.is_there()

    def _close(self) -> None:
        self._over = True
        self._file.close()


def _too_slow() -> OSError:
    return OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def open_file(path: Path, head: bytes, limit: float, on_error: Callable[[OSError], None]) -> PlainFile | Background:
    """A new file, written in the way that its file system allows.

    Args:
        path: where; its folder is made if it is not there.
        head: what comes before its first line.
        limit: beyond this size another file is due, bytes.
        on_error: told what another thread could not write.

    Raises:
        OSError: it cannot be made.
    """
    fd = make(path)
    kind = file_system(fd)
    if kind in MAPPABLE and hasattr(os, "posix_fallocate"):
        return MappedFile(path, fd, head, limit)
    if is_remote(kind):
        with suppress(RuntimeError):  # no further thread can be had
            return Background(PlainFile(path, fd, head), limit, on_error)
    return PlainFile(path, fd, head, limit)
