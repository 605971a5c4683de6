"""Train, kill, restart, report: what `make demo` shows.

    python examples/demo.py

The training script beside this file contains no line of goodput-plugins. It is started with one
environment variable set, killed with SIGKILL half-way, and started again by the same command. Then
`goodput report` says where every second of both lives went. All files go to a new folder below the
system's temporary one. Exits with 1, and says why, if anything is not as it should be.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SCRIPT = Path(__file__).with_name("digits.py")
GOODPUT = Path(sys.executable).with_name("goodput")
KILL_FROM = 250
"""The step that training reaches before it is killed; the script saves every 100 steps, so some work is lost."""
OUTAGE = 4.0
"""Seconds between the kill and the restart."""


class Failed(Exception):
    """The demonstration did not go as it should; the text says what was seen."""


def main() -> int:
    place = Path(tempfile.mkdtemp(prefix="goodput-demo-"))
    try:
        demonstrate(place)
    except Failed as error:
        print(f"\ndemo: FAILED: {error}\ndemo: what it left lies in {place}", file=sys.stderr)
        return 1
    return 0


def demonstrate(place: Path) -> None:
    checkpoints = place / "checkpoints"
    command = [sys.executable, "-u", str(SCRIPT), "--workdir", str(checkpoints)]

    say(f"Training {SCRIPT.name}, a plain Flax script, with one environment variable set:")
    print(f"    $ GOODPUT_PLUGINS=auto python {SCRIPT.name} --workdir {checkpoints}", flush=True)
    killed_at = train_and_kill(command, place, checkpoints)
    say(f"Killed with SIGKILL at step {killed_at}. The newest checkpoint is of step {newest(checkpoints)}.")

    say(f"The machine is down for {OUTAGE:.0f} seconds ...")
    time.sleep(OUTAGE)

    say("The same command again; it resumes and completes:")
    train(command, place)

    say("And `goodput report` says where every second of both lives went:")
    print(flush=True)
    check(report(place, "--json"))
    report(place, capture=False)
    print(f"\nThe journals of both lives are below {place / 'goodput'}; this prints the report again:")
    print(f"    $ cd {shlex.quote(str(place))} && {shlex.quote(str(GOODPUT))} report")


def train_and_kill(command: list[str], place: Path, checkpoints: Path) -> int:
    """Start the training and kill it half-way, after a checkpoint; the last step that it told of."""
    with start(command, place) as process:
        for line in lines(process):
            step = re.match(r"step +(\d+)", line)
            if step and int(step[1]) >= KILL_FROM and newest(checkpoints):
                process.kill()
                process.wait()
                return int(step[1])
    raise Failed(f"training ended by itself (exit code {process.returncode}) before it could be killed")


def train(command: list[str], place: Path) -> None:
    """Start the training and see it complete."""
    with start(command, place) as process:
        told = list(lines(process))
    if process.returncode != 0:
        raise Failed(f"the restarted training ended with exit code {process.returncode}")
    if not any(line.startswith("resumed from the checkpoint") for line in told):
        raise Failed("the restarted training did not resume from a checkpoint")


def start(command: list[str], place: Path) -> subprocess.Popen[str]:
    environment = without_ours() | {"GOODPUT_PLUGINS": "auto"}
    return subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines that the training prints, shown as they come."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"    | {line}", end="", flush=True)
        yield line


def newest(checkpoints: Path) -> int | None:
    """The step of the newest committed checkpoint: Orbax gives a folder its plain number on commit."""
    return max((int(path.name) for path in checkpoints.glob("*") if path.name.isdigit()), default=None)


def report(place: Path, *options: str, capture: bool = True) -> str:
    """What `goodput report` prints; not captured, it prints to our own output."""
    command = [str(GOODPUT), "report", *options]
    out = subprocess.PIPE if capture else None
    try:
        done = subprocess.run(command, cwd=place, env=without_ours(), stdout=out, text=True, check=False)
    except OSError as error:
        raise Failed(f"{GOODPUT} does not start ({error}); is goodput-plugins installed here?") from None
    if done.returncode != 0:
        raise Failed(f"`goodput report` ended with exit code {done.returncode}")
    return done.stdout or ""


def without_ours() -> dict[str, str]:
    """The environment without settings of ours that the viewer may have."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")}


def check(text: str) -> None:
    """See that the report knows of both lives."""
    found = json.loads(text)
    for key, wanted in {"status": "completed", "disruptions": 1}.items():
        if found[key] != wanted:
            raise Failed(f"the report says {key} = {found[key]!r}; it should be {wanted!r}")


def say(text: str) -> None:
    print(f"\n==> {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
