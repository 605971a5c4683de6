"""Running real processes: what the switch and the recording promise can be seen from outside only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodput_plugins.core.events import Event, Kind
from goodput_plugins.core.reading import read_journal
from goodput_plugins.core.runlog import Steps


def steps_of(run: Event) -> list[Event]:
    steps = Steps()
    steps.add(run)
    return [Event(Kind.STEP, at, run.thread, number) for at, number in zip(steps.times, steps.numbers, strict=True)]


def reported(path: Path) -> dict[str, Any]:
    """What ``goodput report --json`` says of a run."""
    command = [sys.executable, "-m", "goodput_plugins", "report", str(path), "--json"]
    report: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return report


@dataclass
class Runner:
    """Runs Python scripts in a folder of their own; their journals lie below ``runs``."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def journals(self) -> list[Path]:
        return sorted(path for path in self.runs.rglob("*") if path.is_file())

    def environ(self, **variables: str) -> dict[str, str]:
        """The environment of this test, with no variable of ours but these."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")}
        return clean | {"GOODPUT_DIR": str(self.runs)} | variables

    def command(self, source: str) -> list[str]:
        script = self.folder / "train.py"
        script.write_text(source)
        return [sys.executable, str(script)]

    def __call__(
        self, source: str, *, code: int | None = 0, seconds: float = 100, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, which ``code`` is expected to be, within so many seconds."""
        done = subprocess.run(
            self.command(source),
            env=self.environ(**variables),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert code is None or done.returncode == code, done.stderr
        return done

    def recorded(self) -> tuple[dict[str, Any], list[Event]]:
        """The header and the events of the one journal there is; each step of a run as a STEP."""
        (journal,) = (path for path in self.journals if path.suffix == ".jsonl")  # an agent writes beside
        read = read_journal(journal, journal.read_bytes())
        assert not read.torn
        events: list[Event] = []
        for event in read.events:
            events += steps_of(event) if event.kind is Kind.RUN else [event]
        return dict(read.header), events

    def ending(self) -> str | None:
        """How the one recorded process ended; None if nothing tells."""
        last = self.recorded()[1][-1]
        return last.name if last.kind is Kind.END else None
