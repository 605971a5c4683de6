"""What is examined: an environment, and one run or none. Each fact is found out once, when it is asked for."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from goodput_plugins import environ as env
from goodput_plugins.agent.settings import Settings, asked_for, settings
from goodput_plugins.auto.plugins import TABLE
from goodput_plugins.core import rundir
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import Event, Fact, Kind
from goodput_plugins.core.journal_reading import header_of
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.core.shipper import STATUS
from goodput_plugins.exporters import google_cloud
from goodput_plugins.exporters.errors import Unavailable
from goodput_plugins.exporters.metadata import Metadata

PROBE_SECONDS = 20
"""How long another interpreter may take to start."""
LONGEST_HEADER = 1 << 16

_PROBE = """
import json, sys
from importlib.util import find_spec
def origins(name):
    try: spec = find_spec(name)
    except Exception: return None
    return spec and [spec.origin or ""] + list(spec.submodule_search_locations or [])
armed = any(type(f).__module__ == "goodput_plugins.auto.imports" for f in sys.meta_path)
print(json.dumps({"armed": armed, "origins": {name: origins(name) for name in sys.argv[1:]}}))
"""


class Case:
    """Who comes to the doctor.

    Args:
        path: a run's directory or journal; None where there is no run.
        environ: the environment that a training would have.
        now: ns since the epoch.
    """

    def __init__(self, path: Path | None, environ: Mapping[str, str] = os.environ, *, now: int) -> None:
        self.path = path
        self.environ = environ
        self.now = now
        self.metadata = Metadata(environ)

    @property
    def folder(self) -> Path | None:
        """The run's directory."""
        return None if self.path is None else self.path if self.path.is_dir() else self.path.parent

    @cached_property
    def named(self) -> list[str]:
        """The exporters that the environment names."""
        return env.words(env.EXPORTERS.read(self.environ))

    @cached_property
    def exporters(self) -> list[str]:
        """Those that are asked for, by the environment or else by the run's script."""
        if self.named or self.folder is None:
            return [name for name in self.named if name != "off"]
        logs = [] if asked_for("cloud-logging", self.folder) is None else ["cloud-logging"]
        return logs + list(settings([], self.folder, self.environ).wanted)

    @cached_property
    def settings(self) -> Settings:
        """What the environment and the run's script ask of an agent."""
        return settings(self.named, self.folder or Path("/nowhere"), self.environ)

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels in Google Cloud that the environment or the run's script gives."""
        return self.settings.labels

    def project_of(self, exporter: str) -> str | None:
        """The Google Cloud project that an exporter writes to; a monitor of the script's may name another one."""
        return (self.labels.get("project") if exporter == "cloud-monitoring" else None) or self._project

    @cached_property
    def _project(self) -> str | None:
        try:
            return google_cloud.project(self.environ)
        except Unavailable:
            return self.metadata.project

    @cached_property
    def probe(self) -> Mapping[str, Any]:
        """What an interpreter that starts here with the switch on finds.

        Raises:
            OSError, ValueError, subprocess.SubprocessError: it does not start, or not in time.
        """
        modules = [name for plugin in TABLE for name in (plugin.library, *dict(plugin.also))]
        libraries = sorted({name.partition(".")[0] for name in modules})
        environ = {**self.environ, env.PLUGINS.name: "auto"}
        command = [sys.executable, "-c", _PROBE, *libraries]
        done = subprocess.run(command, env=environ, capture_output=True, timeout=PROBE_SECONDS, check=True)
        found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    @cached_property
    def log(self) -> RunLog | None:
        """What the run recorded; None where there is no run.

        Raises:
            UnusableData: it cannot be read.
        """
        if self.path is None:
            return None
        logs = read(self.path)
        if not logs:
            raise UnusableData(f"{self.path} holds no run.")
        return max(logs, key=lambda log: max((life.start for life in log.lives), default=0))

    @cached_property
    def report(self) -> Report | None:
        """Of the run; None where no process of it trained, or there is no run.

        Raises:
            UnusableData: the run cannot be read.
        """
        if self.log is None:
            return None
        try:
            return calculate(self.log, now=self.now)
        except UnusableData:
            return None

    @cached_property
    def events(self) -> list[Event]:
        """Those of the run's newest process, steps apart."""
        return self.log.lives[-1].events if self.log is not None and self.log.lives else []

    @cached_property
    def told(self) -> Mapping[str, bool]:
        """What the newest process of the run passed to Google's API: argument and value."""
        return {
            str(event.data): bool(event.step)
            for event in self.events
            if event.kind is Kind.FACT and event.name == Fact.ARGUMENT
        }

    @cached_property
    def scripts(self) -> set[str]:
        """The scripts that recorded under the run's name."""
        return _headers(self.folder, "script")

    @cached_property
    def wanted(self) -> set[str]:
        """Names that this run was to have, had another living process not held them."""
        return _headers(self.folder, "wanted")

    @cached_property
    def others(self) -> list[str]:
        """Runs beside this one that were to have its name, but this one held it."""
        if self.folder is None:
            return []
        beside = self.folder.parent.glob(f"{glob.escape(self.folder.name)}-*")
        mine = rundir.decode(self.folder.name)
        return sorted(rundir.decode(path.name) for path in beside if mine in _headers(path, "wanted"))

    @cached_property
    def agent(self) -> Mapping[str, Any] | None:
        """How the run's agent does, as it wrote beside the journals; None if it wrote nothing."""
        return None if self.folder is None else status_of(self.folder)


def _headers(folder: Path | None, key: str) -> set[str]:
    """What the headers of a run's journals say of something."""
    found = set()
    for journal in rundir.journals(folder) if folder is not None else ():
        try:
            with journal.open("rb") as file:
                found.add(str(header_of(journal, file.read(LONGEST_HEADER)).get(key, "")))
        except (OSError, UnusableData):
            continue
    return found - {""}


def status_of(folder: Path) -> Mapping[str, Any] | None:
    """How the agent of the run in that folder does, as it wrote; None if it wrote nothing that can be read."""
    try:
        status = json.loads((folder / STATUS).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return status if isinstance(status, dict) and is_status(status) else None


def is_status(told: Mapping[str, Any]) -> bool:
    """Whether this is what an agent writes."""
    numbers = all(isinstance(told.get(name, 0), int | float) for name in ("moment", "entries", "dropped", "unsent"))
    exporters = told.get("exporters", {})
    return numbers and isinstance(exporters, dict) and all(isinstance(one, dict) for one in exporters.values())
