"""``goodput doctor``: find out what is wrong, and say what to do."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from goodput_plugins.cli.progress import working
from goodput_plugins.cli.target import path_of
from goodput_plugins.core import rundir
from goodput_plugins.doctor import examine
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, Level

SCHEMA = "goodput-doctor/1"


def run(options: Namespace) -> int:
    """Examine this environment and a run.

    Args:
        options: what :mod:`goodput_plugins.cli.arguments` parsed.

    Returns:
        1 if something is wrong, else 0.
    """
    path = _path(options.target)
    with working("examining"):
        groups = dict(examine(Case(path, now=time.time_ns())))
    counts = Counter(diagnosis.level for found in groups.values() for diagnosis in found)
    if options.json:
        print(json.dumps(_as_json(groups, counts, None if path is None else str(path)), indent=2))
    else:
        _draw(groups, counts)
    return 1 if counts[Level.WRONG] else 0


def _path(target: str | None) -> Path | None:
    """The run's folder, that of this machine first: there its agent writes; None where there is no run."""
    if target is None:
        return rundir.newest_run(rundir.root())
    here = rundir.run_dir(target, rundir.root())
    return here if rundir.journals(here) else path_of(target)


def _as_json(groups: dict[str, list[Diagnosis]], counts: Counter[Level], run: str | None) -> dict[str, object]:
    found = [{"group": title, **asdict(diagnosis)} for title, group in groups.items() for diagnosis in group]
    return {"schema": SCHEMA, "run": run, "counts": {level: counts[level] for level in Level}, "checks": found}


def _draw(groups: dict[str, list[Diagnosis]], counts: Counter[Level]) -> None:
    from rich.console import Console

    from goodput_plugins.cli.render.doctor import show
    from goodput_plugins.cli.report import NARROWEST

    console = Console(file=sys.stdout)
    console.width = max(console.width, NARROWEST)
    show(groups, counts, console)
