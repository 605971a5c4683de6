"""Would exporters that write to this machine find their place: a free port, a folder that takes files?

It is tried here, before a training asks for it, as the exporter would: a port is bound and let go of, a file without a
name is made. Where the run's agent is at work that has done so, and nothing is tried.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.core import rundir
from goodput_plugins.core.name_lock import AGENT, NameLock
from goodput_plugins.doctor.case import Case, status_of
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, unknown, wrong
from goodput_plugins.doctor.disk import existing, refused


def prometheus(case: Case) -> Iterator[Diagnosis]:
    """Whether the agent could answer Prometheus."""
    address = case.settings.address
    if "prometheus" not in case.exporters or _has_agent(case):
        return
    why = _unbound(address)
    if why is None:
        yield ok("prometheus", f"{address} is free, where the agent answers Prometheus")
        return
    holder = _holder(case, address)
    by = f": the agent of the run {holder} does" if holder else ""
    yield wrong(
        "prometheus",
        f"the agent cannot answer Prometheus at {address} ({why}){by}",
        "It tries again every 2 s; until it is free a scrape gets nothing, or what another one answers.",
        "Set GOODPUT_PROMETHEUS_ADDRESS to an address of this machine and a free port, for each run on it another one.",
    )


def tensorboard(case: Case) -> Iterator[Diagnosis]:
    """Whether event files could be written."""
    place, is_named = case.settings.tensorboard, bool(env.TENSORBOARD_DIR.read(case.environ))
    if "tensorboard" not in case.exporters or _has_agent(case) or (case.folder is None and not is_named):
        return
    if rundir.is_remote(place):
        yield unknown(
            "tensorboard",
            f"{place} is not on this machine",
            "Whether event files can be written there is not tried.",
            "Look for `values` here once a training runs.",
        )
        return
    why = refused(existing(Path(place)))
    if why is None:
        yield ok("tensorboard", f"event files for TensorBoard can be written to {place}")
    else:
        yield wrong(
            "tensorboard",
            f"no event file for TensorBoard can be written to {place}: {why}",
            "TensorBoard gets nothing; the other exporters do.",
            "Set GOODPUT_TENSORBOARD_DIR to a folder that can be written.",
        )


def _has_agent(case: Case) -> bool:
    """Whether an agent of the run is at work; what it has met there is told as what it wrote."""
    return case.folder is not None and NameLock(AGENT).is_taken(case.folder)


def _unbound(address: str) -> str | None:
    """Why nothing can answer at an address; None if something can."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        socket.create_server((str(place[0]), int(place[1])), family=family).close()
    except OSError as error:
        known = error.errno is not None and error.errno > 0  # those of names are not
        return os.strerror(error.errno or 0) if known else error.strerror or str(error)
    return None


def _holder(case: Case, address: str) -> str:
    """The run whose agent answers at that port, as far as runs beside this one tell; "" if none does."""
    below = rundir.root(case.environ)
    for folder in sorted(below.iterdir()) if below.is_dir() else ():
        exporters = (status_of(folder) or {}).get("exporters")
        told = exporters.get("prometheus") if isinstance(exporters, dict) else None
        port = str(told.get("port")) if isinstance(told, dict) else ""
        if port == address.rpartition(":")[2] and NameLock(AGENT).is_taken(folder):
            return rundir.decode(folder.name)
    return ""


CHECKS = (prometheus, tensorboard)
