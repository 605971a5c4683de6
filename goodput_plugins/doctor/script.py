"""What did the script ask of Google's API? It noted that in the journal."""

from __future__ import annotations

from collections.abc import Iterator

from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, warning


def recorder(case: Case) -> Iterator[Diagnosis]:
    """``logging_enabled`` of a recorder."""
    if case.told.get("logging_enabled") is False:
        yield warning(
            "logging-enabled",
            "the script's GoodputRecorder has logging_enabled=False in the process that recorded",
            "What it tells by hand (its steps, its custom events) is dropped.",
            "Pass logging_enabled=True in process 0.",
        )
    elif "logging_enabled" in case.told:
        yield ok("logging-enabled", "the script's GoodputRecorder has logging_enabled=True")


def monitor(case: Case) -> Iterator[Diagnosis]:
    """``monitoring_enabled`` and ``enable_gcp_goodput_metrics`` of a monitor."""
    cases = {
        "monitoring_enabled": ("monitoring-enabled", "GoodputMonitor", "No metric is sent for it."),
        "enable_gcp_goodput_metrics": ("gcp-metrics", "GCPOptions", "Cloud Monitoring gets no goodput and no badput."),
    }
    for argument, (id, owner, meaning) in cases.items():
        if case.told.get(argument) is False:
            text = f"the script's {owner} has {argument}=False in the process that recorded"
            yield warning(id, text, meaning, f"Pass {argument}=True in process 0, if metrics are wanted.")
        elif argument in case.told:
            yield ok(id, f"the script's {owner} has {argument}=True")


CHECKS = (recorder, monitor)
