"""Commits step 1, then dies by SIGKILL while step 2 is written in the background."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint._src.path import atomicity

from goodput_plugins.core.clock import system_clock
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.patching import Hooks
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.orbax.install import install_orbax

folder = Path(sys.argv[1])
install_orbax(ocp, Hooks(Recorder(Journal(folder / "journal").write, system_clock()), Guard("orbax")))
manager = ocp.CheckpointManager(folder / "checkpoints")
state = {"w": jnp.arange(6.0)}
manager.save(1, args=ocp.args.StandardSave(state))
manager.wait_until_finished()
returned = threading.Semaphore(0)


async def never(*args: Any, **kwargs: Any) -> None:
    returned.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


atomicity.on_commit_callback = never
manager.save(2, args=ocp.args.StandardSave(state))
returned.release()
manager.wait_until_finished()
