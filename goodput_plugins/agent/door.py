"""How others reach a run's agent: a socket that one agent of a run holds while it lives.

A second agent finds it taken, and stands by. The training process asks here, at its end, that
everything be sent, and gets its answer once it is; and so when a monitor of the script's stops, for the last values.
An agent that stands by knocks, to tell by which variables it would send.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from goodput_plugins.core.name_lock import AGENT, address, keep_open
from goodput_plugins.core.shipper import ASKS, GOES, NOTHING_WANTED, SENT, STANDS_BY, UNSENT, VALUES

LONGEST = 4096
"""No message is longer, bytes."""


class Door:
    """One agent's hold on a run directory.

    Attributes:
        waiting: the addresses of those that wait until everything is sent.
        watching: and of those that wait for the last values.
        asked: how often somebody asked.
        knocks: how often an agent that stands by did.
        hear: gives the answer to what an agent that stands by tells, or a trainer that wants nothing sent.
    """

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.watching: list[bytes] = []
        self.asked = 0
        self.knocks = 0
        self.hear: Callable[[bytes], bytes] = lambda message: b""
        self._socket: socket.socket | None = None
        self._folder = -1
        self._knocking: socket.socket | None = None

    @property
    def is_waited_at(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self.waiting or self.watching)

    def take(self, folder: Path) -> bool:
        """Whether this is the one agent of that directory now."""
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        opened = -1
        try:
            opened = keep_open(folder)
            held.bind(address(opened, AGENT))
        except OSError:
            held.close()
            if opened >= 0:
                os.close(opened)
            return False
        held.setblocking(False)
        self._socket, self._folder = held, opened
        if self._knocking is not None:
            self._knocking.close()
        return True

    def knock(self, folder: Path, message: bytes) -> bytes:
        """Tell something to the agent that serves; what it answered to the last time, if it did."""
        if self._knocking is None:
            self._knocking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._knocking.bind("")  # a name that only the kernel knows
            self._knocking.setblocking(False)
        answer = b""
        with suppress(OSError):  # it has not answered yet
            answer = self._knocking.recv(LONGEST)
        with suppress(OSError):  # it has gone meanwhile, or does not listen now
            self._knocking.sendto(message, address(folder, AGENT))
        return answer

    def wait(self, seconds: float) -> None:
        """Wait so long, or until somebody asks for something."""
        if self._socket is None:
            select.select([], [], [], max(0.0, seconds))
            return
        select.select([self._socket], [], [], max(0.0, seconds))
        while True:
            try:
                message, sender = self._socket.recvfrom(LONGEST)
            except OSError:
                return
            self._take(message, sender if isinstance(sender, bytes) else b"")

    def _take(self, message: bytes, sender: bytes) -> None:
        if message.startswith((STANDS_BY, NOTHING_WANTED)):
            self.knocks += message.startswith(STANDS_BY)
            self._tell([sender] if sender else [], self.hear(message))
        elif sender and message in (ASKS, VALUES):
            (self.waiting if message == ASKS else self.watching).append(sender)
            self.asked += 1

    def wake(self) -> None:
        """End the wait that goes on; a signal handler or another thread may call it."""
        held = self._socket
        if held is not None:
            with suppress(OSError):  # so many are waiting there that it ends anyway
                held.sendto(b"", held.getsockname())

    def answer(self, *, sent: bool) -> None:
        """Tell those that wait that everything was sent, or that it cannot be."""
        waiting, self.waiting = self.waiting, []
        self._tell(waiting, SENT if sent else UNSENT)

    def show(self) -> None:
        """Tell those that wait for the last values that these are where they can be by now."""
        watching, self.watching = self.watching, []
        self._tell(watching, SENT)

    def _tell(self, addresses: list[bytes], answer: bytes) -> None:
        for sender in addresses:
            try:
                if self._socket is not None:
                    self._socket.sendto(answer, sender)
            except OSError:  # it has gone
                continue

    def close(self) -> None:
        """Let another agent have the run; who waits is to ask that one."""
        self.wait(0.0)
        self._tell(self.waiting + self.watching, GOES)
        held, self._socket = self._socket, None
        if held is not None:
            held.close()
            os.close(self._folder)
