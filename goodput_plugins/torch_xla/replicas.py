"""Which thread of several is counted, where one process drives several devices with a thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

FIRST = "xla:0"
"""The first device of a process."""


def replica_test(extension: Any) -> Callable[[], bool]:
    """A function that tells whether this thread trains a replica: beside the main thread, not on the first device.

    Args:
        extension: the C++ extension, ``torch_xla._XLAC``.
    """
    main = threading.main_thread().ident
    is_initialized, device = extension._xla_runtime_is_initialized, extension._xla_get_default_device

    def is_replica() -> bool:
        return threading.get_ident() != main and is_initialized() and device() != FIRST

    return is_replica
