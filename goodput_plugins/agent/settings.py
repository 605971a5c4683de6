"""Which reports an agent sends where: what the environment asks for, and what the script's monitors do.

A monitor (:class:`goodput_plugins.monitoring.GoodputMonitor`) says what it wants in ``monitor.json`` in the run's
folder. A variable that is set wins over it. An exporter that the environment names gets everything but what a
monitor was told to leave out; one that only monitors want gets what they were started for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goodput_plugins import environ as env
from goodput_plugins.core.shipper import ASKED, MONITOR
from goodput_plugins.exporters.series import Wanted

OF_REPORTS = ("tensorboard", "prometheus", "cloud-monitoring")
"""The exporters of reports, those that need no network first."""


@dataclass(frozen=True)
class Settings:
    """What is to be sent.

    Attributes:
        wanted: what each exporter gets, by its name.
        interval: seconds between two uploads.
        windows: lengths of rolling windows, s.
        ideal: the ideal step time, where it is configured, ns.
        tensorboard: TensorBoard's folder.
        address: where Prometheus asks.
        labels: of Google Cloud, as far as they are given: ``project``, ``location``, ``replica``, ``accelerator``,
            ``cluster``.
        heartbeat: whether Cloud Monitoring gets a heartbeat.
    """

    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    interval: float = 30.0
    windows: tuple[int, ...] = ()
    ideal: int | None = None
    tensorboard: str = ""
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    heartbeat: bool = False


def settings(named: list[str], folder: Path, environ: Mapping[str, str]) -> Settings:
    """What is to be sent now.

    Args:
        named: the exporters that the environment names.
        folder: the run's directory.
        environ: the environment.
    """
    base = Settings(
        {name: Wanted() for name in OF_REPORTS if name in named},
        float(env.UPLOAD_INTERVAL.read(environ)),
        tuple(int(float(word)) or 1 for word in env.words(env.ROLLING_WINDOWS.read(environ))),
        tensorboard=env.TENSORBOARD_DIR.read(environ) or str(folder / "tensorboard"),
        address=env.PROMETHEUS_ADDRESS.read(environ),
        labels=_labels(environ, {}),
        heartbeat=env.HEARTBEAT.read(environ) == "on",
    )
    try:
        return _with_monitors(base, _asked(folder), environ)
    except (ValueError, TypeError, KeyError, AttributeError):
        return base  # it tells of no monitor, or is none of ours


def asked_for(exporter: str, folder: Path) -> str | None:
    """The log that the script itself asks to be sent to, "" for the usual one; None if it does not ask for that."""
    asked = _asked(folder).get(ASKED)
    logger = asked.get(exporter) if isinstance(asked, dict) else None
    return logger if isinstance(logger, str) else None


def is_readable(asked: Mapping[str, Any]) -> bool:
    """Whether what the script asks for can be made out of what was read."""
    logs = asked.get(ASKED, {})
    try:
        return isinstance(logs, dict) and bool("exporters" not in asked or _with_monitors(Settings(), asked, {}))
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def has_monitors(folder: Path) -> bool:
    """Whether the script has monitors that were ever started."""
    return "exporters" in _asked(folder)


def _asked(folder: Path) -> Mapping[str, Any]:
    """What the script asks for; nothing, where that cannot be read."""
    try:
        held = json.loads((folder / MONITOR).read_bytes())
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _with_monitors(base: Settings, asked: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The same with what the script's monitors want."""
    started = {name: _started(asked) for name in OF_REPORTS if name in asked["exporters"]}
    wanted = {name: _but(one, asked, name) for name, one in (started | dict(base.wanted)).items()}
    return replace(
        base,
        wanted={name: wanted[name] for name in OF_REPORTS if name in wanted and _is_any(wanted[name])},
        interval=base.interval if environ.get(env.UPLOAD_INTERVAL.name) else float(asked["interval"]),
        windows=base.windows or tuple(int(length) or 1 for length in asked["windows"]),
        ideal=None if asked["ideal"] is None else round(asked["ideal"] * 1e9),
        tensorboard=env.TENSORBOARD_DIR.read(environ) or asked["tensorboard"] or base.tensorboard,
        labels=_labels(environ, asked["labels"]),
    )


def _started(asked: Mapping[str, Any]) -> Wanted:
    """What the monitors were started for."""
    started = asked["started"]
    return Wanted("goodput" in started, bool(asked["badput"]), "windows" in started, "deviation" in started)


def _is_any(wanted: Wanted) -> bool:
    return wanted.goodput or wanted.windows or wanted.deviation


def _but(wanted: Wanted, asked: Mapping[str, Any], name: str) -> Wanted:
    """All of it that no monitor was told to leave out."""
    if name != "cloud-monitoring":
        return wanted
    goodput, deviation = bool(asked["gcp_goodput"]), bool(asked["gcp_deviation"])
    return Wanted(wanted.goodput and goodput, wanted.badput, wanted.windows and goodput, wanted.deviation and deviation)


def _labels(environ: Mapping[str, str], asked: Mapping[str, Any]) -> dict[str, str]:
    variables = {
        "project": env.PROJECT,
        "location": env.LOCATION,
        "replica": env.REPLICA_ID,
        "accelerator": env.ACCELERATOR_TYPE,
    }
    named = {name: variable.read(environ) for name, variable in variables.items()}
    found = {name: named.get(name) or asked.get(name) for name in (*variables, "cluster")}
    return {name: str(value) for name, value in found.items() if value}
