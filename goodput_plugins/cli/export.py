"""``goodput export``: print a run as log entries."""

from __future__ import annotations

import json
from argparse import Namespace

from goodput_plugins.cli.progress import working
from goodput_plugins.cli.report import chosen
from goodput_plugins.cli.target import path_of
from goodput_plugins.core.ml_goodput import entries
from goodput_plugins.core.reading import read


def run(options: Namespace, *, now: int) -> int:
    """Print the entries of the runs that the options name, one JSON object a line.

    Args:
        options: what :mod:`goodput_plugins.cli.arguments` parsed.
        now: ns since the epoch.
    """
    path = path_of(options.target)
    with working(f"reading {path}"):
        logs = chosen(read(path), options.run, str(path))
    for log in logs:
        for entry in entries(log, now=now):
            print(json.dumps(entry, allow_nan=False))
    return 0
