"""One living primary process per run and machine: the name that it holds while it lives.

A run is held by binding a socket to a name that only the kernel knows. So nothing is left behind by a
killed process, nothing is written to a file system that may be slow, remote or full, and what two
machines do in a shared folder is none of each other's business.

The name is made of the folder's inode. A holder keeps the folder open, so that no other one is given that inode while
it lives, though its own be deleted.

>>> lock = NameLock()
>>> lock.take(Path("goodput/digits"))
True
"""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket


PRIMARY = b"goodput"
"""The part of a process that records."""
AGENT = b"goodput-agent"
"""The part of a process that sends what was recorded."""


class NameLock:
    """A hold on one run directory in one part, until :meth:`release` or the process's end.

    Args:
        part: what the holder is to the run; there is one holder of each.
    """

    def __init__(self, part: bytes = PRIMARY) -> None:
        self._part = part
        self._socket: socket | None = None
        self._folder = -1

    def take(self, folder: Path) -> bool:
        """Whether no other living process holds that directory; also where this system cannot tell.

        Args:
            folder: a directory that exists; by whatever path it is reached, it is the same one.
        """
        try:
            import _socket  # the module `socket` costs milliseconds

            held = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        except (OSError, ImportError, AttributeError):
            return True
        try:
            opened = keep_open(folder)
        except OSError:
            held.close()
            return True
        try:
            held.bind(address(opened, self._part))
        except OSError as error:
            held.close()
            os.close(opened)
            return error.errno != errno.EADDRINUSE
        self._socket, self._folder = held, opened
        return True

    def is_taken(self, folder: Path) -> bool:
        """Whether a living process holds that directory, asked without holding it for a moment."""
        try:
            import _socket

            asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        except (OSError, ImportError, AttributeError):
            return False
        try:
            asking.connect(address(folder, self._part))
            return True
        except OSError:
            return False
        finally:
            asking.close()

    def release(self) -> None:
        """Let others have it; a forked child does this at once, which leaves the parent's hold as it is."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()
            os.close(self._folder)


def keep_open(folder: Path) -> int:
    """A descriptor of a directory, which is good for nothing else than to keep its inode from being used again."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def address(folder: Path | int, part: bytes) -> bytes:
    """The name of the socket by which a run directory is held; datagrams to it reach the holder.

    Args:
        folder: the directory, or a descriptor of it.
        part: of which the holder is sought.
    """
    place = os.stat(folder)
    identity = f"{place.st_dev}:{place.st_ino}:{os.getuid()}"
    return b"\0" + part + b"/" + hashlib.sha256(identity.encode()).hexdigest()[:32].encode()
