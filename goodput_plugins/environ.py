"""Every environment variable of ours: its name, what it does, what it may hold.

>>> PROCESSES.read({"GOODPUT_PROCESSES": "all"})
'all'

An unknown ``GOODPUT_*`` name or value is told once, with the known ones, and otherwise ignored:
training goes on with the default. This module is read at interpreter start, so it imports nothing
that an interpreter has not loaded already.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX = "GOODPUT_"


class Variable:
    """One environment variable.

    Attributes:
        name: as it is set in the environment.
        text: what it does, one sentence.
        known: the values it takes, in words.
        default: what :meth:`read` answers where it is unset, empty or holds something unknown.
    """

    __slots__ = ("_takes", "default", "known", "name", "text")

    def __init__(
        self,
        name: str,
        text: str,
        known: str = "any text",
        takes: Callable[[str], bool] = bool,
        *,
        default: str = "",
    ) -> None:
        self.name = name
        self.text = text
        self.known = known
        self.default = default
        self._takes = takes

    def read(self, environ: Mapping[str, str] = os.environ) -> str:
        """Its value, or the default."""
        value = environ.get(self.name, "").strip()
        return value if value and self._takes(value) else self.default

    def fault(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """What is wrong with its value, one clause; None if nothing is."""
        value = environ.get(self.name, "").strip()
        if not value or self._takes(value):
            return None
        return f"{self.name}={value} is not known (it takes {self.known})"


def _one_of(*values: str) -> tuple[str, Callable[[str], bool]]:
    return " or ".join(values), values.__contains__


def _off_or_some_of(*values: str) -> tuple[str, Callable[[str], bool]]:
    known = "off, or a list of " + ", ".join(values)
    return known, lambda value: value == "off" or _are_all(value, values.__contains__)


def words(value: str) -> list[str]:
    """The words of a comma-separated list, in order, the empty ones left out."""
    return [word.strip() for word in value.split(",") if word.strip()]


def plugins_asked_for(environ: Mapping[str, str]) -> list[str]:
    """The words of ``GOODPUT_PLUGINS``, in lower case."""
    return words(PLUGINS.read(environ).lower())


def _is_positive(value: str) -> bool:
    try:
        return 0 < float(value) < float("inf")
    except ValueError:
        return False


def _are_all(value: str, takes: Callable[[str], bool]) -> bool:
    """Whether a list has words, and each is one of these."""
    return bool(words(value)) and all(map(takes, words(value)))


_POSITIVE = ("a number above 0", _is_positive)
_POSITIVES = ("a list of numbers above 0", lambda value: _are_all(value, _is_positive))
_LAST_PORT = 65_535


def _is_address(value: str) -> bool:
    host, _, port = value.rpartition(":")
    return host != "" and port.isascii() and port.isdigit() and int(port) <= _LAST_PORT


_ADDRESS = ("host:port", _is_address)

PLUGINS = Variable(
    "GOODPUT_PLUGINS",
    "Arms the plugins: all that are found, or those in a list.",
    "auto, off or a list of plugins",
    lambda value: bool(words(value)),
)
RUN_NAME = Variable("GOODPUT_RUN_NAME", "Names the run; restarts under one name are one run.")
DIR = Variable(
    "GOODPUT_DIR", "The folder that holds a folder for each run.", "a path, or gs://bucket/path", default="goodput"
)
PROCESSES = Variable(
    "GOODPUT_PROCESSES", "Which processes of a job keep a journal.", *_one_of("primary", "all"), default="primary"
)
DEVICE_TIME = Variable(
    "GOODPUT_DEVICE_TIME", "Whether to learn when the device finished a step.", *_one_of("auto", "off"), default="auto"
)
EVAL = Variable("GOODPUT_EVAL", "How evaluations are found.", *_one_of("named", "auto", "off"), default="named")
SIGTERM = Variable("GOODPUT_SIGTERM", "What is done on SIGTERM.", *_one_of("chain", "note"), default="chain")
MAX_BYTES = Variable(
    "GOODPUT_MAX_BYTES", "How large an attempt's journal may grow in full.", *_POSITIVE, default="2000000000"
)
EXPORTER_NAMES = ("cloud-logging", "cloud-monitoring", "tensorboard", "prometheus")
EXPORTERS = Variable(
    "GOODPUT_EXPORTERS",
    "Where an agent process sends reports and events.",
    *_off_or_some_of(*EXPORTER_NAMES),
)
UPLOAD_INTERVAL = Variable("GOODPUT_UPLOAD_INTERVAL", "Seconds between two uploads.", *_POSITIVE, default="30")
ROLLING_WINDOWS = Variable("GOODPUT_ROLLING_WINDOWS", "Lengths of rolling windows, in seconds.", *_POSITIVES)
TENSORBOARD_DIR = Variable(
    "GOODPUT_TENSORBOARD_DIR", "The folder for TensorBoard; by default tensorboard in the run's folder.", "a path"
)
LOGGER = Variable("GOODPUT_LOGGER", "The Cloud Logging log to write to; by default goodput_<run name>.")
LOG_FORMAT = Variable(
    "GOODPUT_LOG_FORMAT", "The form of log entries.", *_one_of("compact", "ml-goodput"), default="compact"
)
FLUSH_TIMEOUT = Variable(
    "GOODPUT_FLUSH_TIMEOUT", "Seconds that an exit may wait for a last upload.", *_POSITIVE, default="5"
)
DEBUG = Variable("GOODPUT_DEBUG", "Makes the command line show the traceback of a fault of ours.", "1 or 0")
PROJECT = Variable("GOODPUT_PROJECT", "The Google Cloud project to write to.")
LOCATION = Variable("GOODPUT_LOCATION", "The location label of exported series.")
REPLICA_ID = Variable("GOODPUT_REPLICA_ID", "The replica label of exported series.")
ACCELERATOR_TYPE = Variable("GOODPUT_ACCELERATOR_TYPE", "The accelerator label of exported series.")
HEARTBEAT = Variable(
    "GOODPUT_HEARTBEAT",
    "Whether Cloud Monitoring gets a heartbeat of the process, too.",
    *_one_of("on", "off"),
    default="off",
)
PROMETHEUS_ADDRESS = Variable(
    "GOODPUT_PROMETHEUS_ADDRESS", "Where the agent answers Prometheus.", *_ADDRESS, default="0.0.0.0:9464"
)
LOGGING_ENDPOINT = Variable("GOODPUT_LOGGING_ENDPOINT", "Another address of Cloud Logging.", *_ADDRESS)
MONITORING_ENDPOINT = Variable("GOODPUT_MONITORING_ENDPOINT", "Another address of Cloud Monitoring.", *_ADDRESS)
TPU_ENDPOINT = Variable("GOODPUT_TPU_ENDPOINT", "Another address of the TPU API.", *_ADDRESS)
RESOURCE_MANAGER_ENDPOINT = Variable(
    "GOODPUT_RESOURCE_MANAGER_ENDPOINT", "Another address of the Cloud Resource Manager API.", *_ADDRESS
)
SERVICE_USAGE_ENDPOINT = Variable(
    "GOODPUT_SERVICE_USAGE_ENDPOINT", "Another address of the Service Usage API.", *_ADDRESS
)

METADATA_HOST = Variable("GCE_METADATA_HOST", "Where the metadata server answers (a standard variable).")
CLOUD_PROJECT = Variable("GOOGLE_CLOUD_PROJECT", "The project where ours is unset (a standard variable).")
STORAGE_EMULATOR = Variable("STORAGE_EMULATOR_HOST", "Where Cloud Storage answers (a standard variable).")

KNOWN = {variable.name: variable for variable in list(globals().values()) if isinstance(variable, Variable)}
"""Every variable, by its name in the environment."""

_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
"""Where launchers tell a process its index and the count: torchrun, Slurm, Open MPI, MPICH and Intel MPI."""


def rank(environ: Mapping[str, str] = os.environ) -> tuple[int, int | None] | None:
    """This process's index among the job's, and their count, if a launcher told; else None."""
    for index, count in _RANKS:
        if environ.get(index, "").isdecimal():
            total = environ.get(count, "")
            return int(environ[index]), int(total) if total.isdecimal() else None
    return _rank_on_host(environ)


def _rank_on_host(environ: Mapping[str, str]) -> tuple[int, int | None] | None:
    """What a launcher that tells only the place on the host, as Lightning's does, says of the rank.

    It is exact on the first host, and on others where the launcher told how many processes each has;
    elsewhere it is any that is not 0.
    """
    if not environ.get("LOCAL_RANK", "").isdecimal():
        return None
    local, host, each = (
        int(value) if (value := environ.get(name, "")).isdecimal() else 0
        for name in ("LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE")
    )
    total = environ.get("WORLD_SIZE", "")
    return host * max(each, 1) + local, int(total) if total.isdecimal() else None


def values(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Which of our variables hold what they do not take, one clause each."""
    return [fault for variable in KNOWN.values() if (fault := variable.fault(environ))]


def strangers(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names that begin as ours do, and are none of ours."""
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in KNOWN)


def faults(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What is unknown in our variables, one clause each."""
    found, unknown = values(environ), strangers(environ)
    if unknown:
        ours = ", ".join(name for name in KNOWN if name.startswith(PREFIX))
        found.append(f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not known (there are: {ours})")
    return found


def speaks_for_job(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process should tell its user things: not a helper process, not a rank above 0."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return False
    place = rank(environ)
    return place is None or place[0] == 0


_warned = False


def warn_once(environ: Mapping[str, str] = os.environ) -> None:
    """Say, once a process, what is unknown in our variables."""
    global _warned
    if _warned:
        return
    _warned = True
    found = faults(environ) if speaks_for_job(environ) else []
    if found:
        from goodput_plugins.core.guard import say

        say(f"in the environment, {'; '.join(found)}. Ignored, as if it were not set; training goes on.")
