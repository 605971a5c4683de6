"""A network mount that can be told to hang: a file system in memory, served over FUSE by a process of its own.

``python slow_mount.py FOLDER`` mounts it, as type ``fuse.slow``, and prints a line once it is there.
While a file ``FOLDER.hangs`` exists no request is taken, so who waits for an answer can be killed, as on
NFS. It knows what a journal needs: folders, files, writing, cutting, reading, listing. It does not want to
be told that a file is closed: the kernel would wait for its answer when a process ends, and no code in the
process could help it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from subprocess import PIPE, Popen


class Op(IntEnum):
    """What the kernel asks for (linux/fuse.h)."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    OPEN = 14
    READ = 15
    WRITE = 16
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    CREATE = 35
    BATCH_FORGET = 42


SIZE_IS_SET = 8
OPENED = struct.pack("<QII", 0, 0, 0)


@dataclass
class Node:
    """A file (``data``) or a folder (``names``)."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[bytes, int] = field(default_factory=dict)


class Server:
    """Answers requests, one after the other."""

    def __init__(self) -> None:
        self.nodes = {1: Node(stat.S_IFDIR | 0o755)}

    def answer(self, opcode: int, at: int, body: bytes) -> bytes | None:
        """The answer's body; None where none is expected.

        Raises:
            OSError: the answer is this error.
        """
        node = self.nodes[at or 1]
        match opcode:
            case Op.INIT:
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0)
            case Op.LOOKUP:
                return self._entry(self._find(node, body))
            case Op.GETATTR:
                return self._attributes(at)
            case Op.SETATTR:
                valid, size = struct.unpack_from("<I12xQ", body)
                if valid & SIZE_IS_SET:
                    del node.data[size:]
                    node.data.extend(bytes(size - len(node.data)))
                return self._attributes(at)
            case Op.MKDIR:
                return self._entry(self._new(node, stat.S_IFDIR | 0o755, body[8:]))
            case Op.CREATE:
                return self._entry(self._new(node, stat.S_IFREG | 0o644, body[16:])) + OPENED
            case Op.UNLINK | Op.RMDIR:
                self._find(node, body)
                del node.names[body.rstrip(b"\0")]
                return b""
            case Op.OPEN | Op.OPENDIR:
                return OPENED
            case Op.READ:
                offset, size = struct.unpack_from("<8xQI", body)
                return bytes(node.data[offset : offset + size])
            case Op.WRITE:
                offset, size = struct.unpack_from("<8xQI", body)
                node.data.extend(bytes(max(0, offset - len(node.data))))
                node.data[offset : offset + size] = body[40 : 40 + size]
                return struct.pack("<II", size, 0)
            case Op.READDIR:
                (offset,) = struct.unpack_from("<8xQ", body)
                return self._list(node) if offset == 0 else b""
            case Op.RELEASE | Op.FSYNC | Op.RELEASEDIR:
                return b""
            case Op.FORGET | Op.BATCH_FORGET:
                return None
        raise OSError(errno.ENOSYS, "")

    def _find(self, folder: Node, name: bytes) -> int:
        try:
            return folder.names[name.rstrip(b"\0")]
        except KeyError:
            raise OSError(errno.ENOENT, "") from None

    def _new(self, folder: Node, mode: int, name: bytes) -> int:
        at = folder.names[name.rstrip(b"\0")] = max(self.nodes) + 1
        self.nodes[at] = Node(mode)
        return at

    def _attr(self, at: int) -> bytes:
        node = self.nodes[at]
        return struct.pack("<QQQ24x12xIIIIIII", at, len(node.data), 1, node.mode, 1, 0, 0, 0, 4096, 0)

    def _attributes(self, at: int) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attr(at)

    def _entry(self, at: int) -> bytes:
        return struct.pack("<QQQQII", at, 0, 0, 0, 0, 0) + self._attr(at)

    def _list(self, folder: Node) -> bytes:
        listed = b""
        for offset, (name, at) in enumerate(folder.names.items(), 1):
            entry = struct.pack("<QQII", at, offset, len(name), self.nodes[at].mode >> 12) + name
            listed += entry.ljust(-(-len(entry) // 8) * 8, b"\0")
        return listed


def serve(folder: str) -> None:
    """Mount and answer until it is unmounted."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"slow", folder.encode(), b"fuse.slow", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    server = Server()
    while True:
        while os.path.exists(folder + ".hangs"):
            time.sleep(0.01)
        try:
            request = os.read(fd, 1 << 20)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            continue
        opcode, unique, at = struct.unpack_from("<4xIQQ", request)
        error_number, body = 0, b""
        try:
            answer = server.answer(opcode, at, request[40:])
            if answer is None:
                continue
            body = answer
        except OSError as error:
            error_number = -(error.errno or errno.EIO)
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(body), error_number, unique) + body)
        except FileNotFoundError:  # whoever asked has gone
            continue


@contextmanager
def slow_mount(folder: Path) -> Iterator[Path]:
    """Such a mount at ``folder``, to the end of the block; the path of the file that makes it hang.

    Raises:
        OSError: nothing can be mounted here.
    """
    folder.mkdir()
    hangs = folder.with_name(folder.name + ".hangs")
    with Popen([sys.executable, __file__, str(folder)], stdout=PIPE, stderr=PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        try:
            if server.stdout.readline() != "mounted\n":
                raise OSError(server.stderr.read().strip().rpartition("\n")[2])
            yield hangs
        finally:
            hangs.unlink(missing_ok=True)
            ctypes.CDLL(None).umount2(str(folder).encode(), 2)  # lazily: a journal may still be open
            server.kill()


if __name__ == "__main__":
    serve(sys.argv[1])
