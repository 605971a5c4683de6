"""Running PyTorch/XLA scripts under the switch, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from running import Runner

SCRIPTS = Path(__file__).parent / "scripts"


def trained(folder: Path, *command: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the interpreter under the switch."""
    names = {"GOODPUT_PLUGINS": "auto", "GOODPUT_RUN_NAME": "job", "PJRT_DEVICE": "CPU"}
    done = subprocess.run(
        [sys.executable, *command],
        env=Runner(folder).environ(**names | variables),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == code, done.stderr
    assert "goodput: " not in done.stderr
    return done
