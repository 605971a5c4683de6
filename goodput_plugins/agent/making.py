"""From settings to exporters: what each needs to know, looked for when it is needed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.agent.position import replace
from goodput_plugins.agent.settings import Settings
from goodput_plugins.exporters import Exporter
from goodput_plugins.exporters.errors import Unavailable
from goodput_plugins.exporters.series import Options, Wanted

LAST = "agent.points.json"
"""When the last points were written to Cloud Monitoring, in the run's folder: by workload, ns since the epoch."""


@dataclass
class Maker:
    """Makes the exporters of a run.

    Args:
        run: the run's name.
        folder: its directory.
        environ: the environment.
        sleep: how Cloud Monitoring waits until it takes the next point.
    """

    run: str
    folder: Path
    environ: Mapping[str, str]
    sleep: Callable[[float], None] = time.sleep
    _lasts: dict[str, Last] = field(default_factory=dict)

    def plan(self, settings: Settings) -> dict[str, tuple[object, Callable[[], Exporter]]]:
        """For each exporter that is wanted what it depends on, and what makes it; raises whatever it fails with."""
        plans: dict[str, tuple[object, Callable[[], Exporter]]] = {}
        for name, wanted in settings.wanted.items():
            if name == "tensorboard":
                plans[name] = (settings.tensorboard, wanted), self._tensorboard(settings.tensorboard, wanted)
            elif name == "prometheus":
                plans[name] = settings.address, self._prometheus(settings.address)
            else:
                depends = (dict(settings.labels), wanted, settings.heartbeat)
                plans[name] = depends, self._cloud_monitoring(settings, wanted)
        return plans

    def _tensorboard(self, folder: str, wanted: Wanted) -> Callable[[], Exporter]:
        def make() -> Exporter:
            with _without("torch"):
                from goodput_plugins.exporters.tensorboard import TensorBoard

            return TensorBoard(folder, wanted)

        return make

    def _prometheus(self, address: str) -> Callable[[], Exporter]:
        def make() -> Exporter:
            from goodput_plugins.exporters.prometheus import Prometheus

            return Prometheus(address)

        return make

    def _cloud_monitoring(self, settings: Settings, wanted: Wanted) -> Callable[[], Exporter]:
        def make() -> Exporter:
            from goodput_plugins.exporters.cloud_monitoring import CloudMonitoring, Workload, connect
            from goodput_plugins.exporters.metadata import Metadata

            here, labels = Metadata(self.environ), settings.labels
            project = labels.get("project") or _project(self.environ, here)
            client = connect(env.MONITORING_ENDPOINT.read(self.environ))
            replica = labels.get("replica", "0")
            location = labels.get("location") or here.location or "global"
            process = {"process_id": "0", "local_rank": "0", "instance_id": here.instance or ""}
            workload = Workload(project, location, self.run, replica, process if settings.heartbeat else None)
            options = Options(
                **vars(wanted),
                accelerator_type=labels.get("accelerator") or here.accelerator_type or "",
                cluster_name=labels.get("cluster") or here.cluster_name,
            )
            key = "/".join((project, location, replica))
            last = self._lasts.setdefault(key, Last(self.folder, key))
            return CloudMonitoring(workload, options, client, known=last.read, save=last.save, sleep=self.sleep)

        return make


@contextmanager
def _without(library: str) -> Iterator[None]:
    """Import what would load that library for things that are not used here: tensorboardX takes 250 MB of PyTorch."""
    if library in sys.modules:
        yield
        return
    sys.modules[library] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[library]


@dataclass
class Last:
    """When a workload's points were last written, on disk: an agent that is started again writes none too soon.

    Args:
        folder: the run's directory.
        workload: whose.
    """

    folder: Path
    workload: str
    _here: int | None = None

    def read(self) -> int:
        """That time, ns since the epoch; 0 where it is not known."""
        if self._here is None:
            value = self._all().get(self.workload, 0)
            self._here = value if isinstance(value, int) else 0
        return self._here

    def save(self, last: int) -> None:
        """Write it down, if the disk takes it."""
        self._here = last
        with suppress(OSError):
            replace(self.folder / LAST, json.dumps(self._all() | {self.workload: last}).encode())

    def _all(self) -> dict[str, object]:
        try:
            held = json.loads((self.folder / LAST).read_bytes())
        except (OSError, ValueError):
            return {}
        return held if isinstance(held, dict) else {}


def _project(environ: Mapping[str, str], here: object) -> str:
    """The project to write to.

    Raises:
        Unavailable: nothing tells.
    """
    from goodput_plugins.exporters import google_cloud
    from goodput_plugins.exporters.metadata import Metadata

    try:
        return google_cloud.project(environ)
    except Unavailable:
        project = here.project if isinstance(here, Metadata) else None
        if not project:
            raise
        return project
