"""``GOODPUT_SIGTERM=note``: where nothing handles SIGTERM, record it, then do as ever: end the process.

A handler in Python runs between two bytecodes only, which may be seconds after the signal when the main
thread is inside a compilation or a collective. So the handler does nothing but wake a thread, and
where nobody uses the wake-up file descriptor the system wakes it at once. The thread records the
notice and the end, restores the default action and sends the signal again: the process ends by it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from goodput_plugins.core.guard import Guard

SIGTERM = signal.SIGTERM
PATIENCE = 1.0
"""How long a SIGTERM waits for the journal, seconds."""


class SigtermHandler:
    """A handler for SIGTERM in the place of the default action.

    Args:
        notice: tells that a SIGTERM arrived.
        ends: tells that the process ends by it now.

    Attributes:
        taken: whether it stands where the default action stood.
    """

    def __init__(self, notice: Callable[[], None], ends: Callable[[], None]) -> None:
        self.taken = False
        self._notice = notice
        self._ends = ends
        self._guard = Guard("sigterm")
        self._signal, self._getsignal, self._set_wakeup_fd = signal.signal, signal.getsignal, signal.set_wakeup_fd
        self._set_c_handler = ctypes.pythonapi.PyOS_setsig
        self._set_c_handler.argtypes = ctypes.c_int, ctypes.c_void_p
        self._set_c_handler.restype = ctypes.c_void_p
        self._python = 0
        self._leaving = False
        self._wake = self._pipe = self._process = -1
        self._masks: dict[int, set[signal.Signals | int]] = {}

    def __call__(self, *args: Any) -> None:
        """What Python calls on SIGTERM."""
        if self._wake >= 0:
            os.write(self._wake, bytes([SIGTERM]))

    def take(self) -> None:
        """Stand in for the default action; on the main thread only.

        Raises:
            OSError, RuntimeError: there is no pipe or no thread to be had; nothing has changed.
        """
        self._process = os.getpid()
        self._pipe, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        watch = threading.Thread(
            target=self._guard, args=(self._watch, self._pipe), name="goodput-sigterm", daemon=True
        )
        watch.start()
        self.taken = True
        self._signal(SIGTERM, self)
        self._python = c_handler(SIGTERM)
        self._use_wakeup_fd()
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._after_fork)

    def give_back(self) -> None:
        """Let the default action be what it was; in vain on another thread than the main one."""
        if not self.taken or threading.current_thread() is not threading.main_thread():
            return
        stands: object = self._getsignal(SIGTERM)
        if stands is self and c_handler(SIGTERM) == self._python:
            self._leaving = True
            self._signal(SIGTERM, signal.SIG_DFL)
        self.taken = False
        used = self._set_wakeup_fd(-1)
        if used != self._wake:
            self._set_wakeup_fd(used)
        wake, self._wake = self._wake, -1
        os.close(wake)  # which ends the thread
        if os.getpid() != self._process:  # a forked child, which has no such thread
            os.close(self._pipe)

    def shown_wakeup_fd(self, used: int, fd: int, /, **kwargs: Any) -> int:
        """What the host is told to have been the wake-up descriptor; where it leaves it free we use it again."""
        if self.taken and fd == -1:
            self._use_wakeup_fd()
        return -1 if used == self._wake else used

    def _use_wakeup_fd(self) -> None:
        used = self._set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        if used not in (-1, self._wake):
            self._set_wakeup_fd(used)

    def _watch(self, pipe: int) -> None:
        while told := os.read(pipe, 64):
            if SIGTERM in told and (self._leaving or self._getsignal(SIGTERM) is self):
                self._terminate()
        os.close(pipe)

    def _terminate(self) -> None:
        survives = os.getpid() == 1  # the first process of a container, by the default action
        self._record(self._notice if survives else self._notice_and_end)
        if not survives:
            self._set_c_handler(SIGTERM, None)
            os.kill(os.getpid(), SIGTERM)

    def _record(self, tell: Callable[[], None]) -> None:
        """Do it within a bounded time: a disk that hangs must not keep a process from ending."""
        try:
            thread = threading.Thread(target=self._guard, args=(tell,), name="goodput-sigterm-record", daemon=True)
            thread.start()
            thread.join(PATIENCE)
        except RuntimeError:
            pass

    def _notice_and_end(self) -> None:
        self._notice()
        self._ends()

    def _before_fork(self) -> None:
        """Until it has let go of our descriptors, a child that is told to end would end its parent."""
        if self.taken:
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, [SIGTERM])

    def _after_fork(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def c_handler(signalnum: int) -> int:
    """The address of the function that the system calls; 0 for the default action, 1 for none."""
    get = ctypes.pythonapi.PyOS_getsig
    get.argtypes, get.restype = (ctypes.c_int,), ctypes.c_void_p
    return get(signalnum) or 0
