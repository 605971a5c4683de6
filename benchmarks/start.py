"""What we cost a Python interpreter that starts: with the switch unset, and when it imports the package.

    python benchmarks/start.py [--runs 60]

Two virtual environments without packages are made, one with our ``.pth`` line. Interpreters are started
in turns (without, with, with, without), so that whatever else the machine does meets all of them; what is
more is the median of the differences within the pairs. Bytecode is cached. Targets: 0.5 ms with the switch unset, 40 ms
for ``import goodput_plugins``, which loads no framework.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from timing import machine, verdict

ROOT = Path(__file__).parent.parent
UNSET_MS, IMPORT_MS = 0.5, 40.0
FRAMEWORKS = ("jax", "flax", "optax", "orbax", "torch", "lightning", "numpy", "wrapt", "rich", "google")
LOADED = f"import goodput_plugins, sys; print([name for name in {FRAMEWORKS} if name in sys.modules])"


def environment(folder: Path, *, ours: bool) -> str:
    """The interpreter of a new virtual environment, with or without our line."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    if ours:
        (site / "goodput_plugins.pth").write_text((ROOT / "goodput_plugins.pth").read_text())
        (site / "root.pth").write_text(f"{ROOT}\n")
    else:
        (site / "root.pth").write_text(f"{ROOT}\n")
    return str(folder / "bin" / "python")


def start(command: list[str]) -> tuple[float, float]:
    """Milliseconds of a process: that passed, and of a processor."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GOODPUT_", "PYTHON"))}
    began = time.perf_counter()
    process = subprocess.Popen(command, env=clean, cwd="/")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit(f"{command} failed")
    return (time.perf_counter() - began) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def compare(without: list[str], ours: list[str], runs: int) -> tuple[float, float, float, float]:
    """Medians of wall time without and with ours, and of what wall and processor time are more, ms."""
    for command in (without, ours):
        start(command)  # bytecode is cached from here on
    pairs = []
    for at in range(runs):
        first, second = (without, ours) if at % 2 else (ours, without)
        one, other = start(first), start(second)
        pairs.append((one, other) if at % 2 else (other, one))
    columns = [(bare[0], more[0], more[0] - bare[0], more[1] - bare[1]) for bare, more in pairs]
    wall, ours_wall, further, processor = (statistics.median(column) for column in zip(*columns, strict=True))
    return wall, ours_wall, further, processor


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the start of an interpreter.")
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bare = environment(Path(place, "bare"), ours=False)
        armed = environment(Path(place, "ours"), ours=True)
        print(f"{machine()}; milliseconds, medians of {options.runs} starts of Python {sys.version.split()[0]}")
        print(f"{'':28}{'without':>9}{'with':>9}{'more':>9}{'of a processor':>16}{'target':>8}")
        nothing = ["-c", "pass"]
        cases = {
            "start, GOODPUT_PLUGINS unset": ([bare, *nothing], [armed, *nothing], UNSET_MS),
            "import goodput_plugins": ([armed, *nothing], [armed, "-c", "import goodput_plugins"], IMPORT_MS),
        }
        for name, (without, ours, target) in cases.items():
            before, after, more, processor = compare(without, ours, options.runs)
            figures = f"{before:9.2f}{after:9.2f}{more:9.2f}{processor:16.2f}{target:8.2f}"
            print(f"{name:28}{figures}  {verdict(more, target)}")
        loaded = subprocess.run([armed, "-c", LOADED], capture_output=True, text=True, check=True, cwd="/").stdout
        print(f"frameworks that the import loads: {loaded.strip()}")


if __name__ == "__main__":
    main()
