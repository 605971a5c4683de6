"""How others reach a run's agent: a socket that one agent of a run holds while it lives.

A second agent finds it taken, and stands by. The training process asks here, at its end, that
everything be sent, and gets its answer once it is; and so when a monitor of the script's stops, for the last values.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from pathlib import Path

from goodput_plugins.core.name_lock import AGENT, address
from goodput_plugins.core.shipper import ASKS, SENT, UNSENT, VALUES


class Door:
    """One agent's hold on a run directory.

    Attributes:
        waiting: the addresses of those that wait until everything is sent.
        watching: and of those that wait for the last values.
        asked: how often somebody asked.
    """

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.watching: list[bytes] = []
        self.asked = 0
        self._socket: socket.socket | None = None

    @property
    def is_waited_at(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self.waiting or self.watching)

    def take(self, folder: Path) -> bool:
        """Whether this is the one agent of that directory now."""
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(address(folder, AGENT))
        except OSError:
            held.close()
            return False
        held.setblocking(False)
        self._socket = held
        return True

    def wait(self, seconds: float) -> None:
        """Wait so long, or until somebody asks for something."""
        if self._socket is None:
            select.select([], [], [], max(0.0, seconds))
            return
        select.select([self._socket], [], [], max(0.0, seconds))
        while True:
            try:
                message, sender = self._socket.recvfrom(64)
            except OSError:
                return
            if isinstance(sender, bytes) and sender and message in (ASKS, VALUES):
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
        """Let another agent have the run."""
        held, self._socket = self._socket, None
        if held is not None:
            held.close()
