"""The agent, as the training process sees it: a process that it starts, and at its end waits for.

The agent (``goodput agent RUN``) sends what the journals hold; nothing is sent from here, and nothing
of the agent is imported here. It is no child of this process: a shell starts it in the background and
is gone at once, so ``os.wait`` of the script never meets it. It inherits no descriptor, so
``python train.py | cat`` ends with the script. Neither call forks the interpreter.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.core import rundir
from goodput_plugins.core.guard import say
from goodput_plugins.core.mounts import file_system
from goodput_plugins.core.name_lock import AGENT, address

LOG, STATUS = "agent.log", "agent.json"
"""What the agent says, for people and for programs, in the run's folder."""
MONITOR = "monitor.json"
"""What the script itself asks for, in the run's folder; the agent looks at it again and again."""
ASKED = "asked"
"""There: the exporters that its recorders ask for, each with a log's name; the rest is what its monitors want."""
ASKS, VALUES, SENT, UNSENT, GOES = b"flush", b"values", b"sent", b"unsent", b"goes"
"""What the agent is asked for: that everything be sent; that the last values be. And its answers; the last one: that
it goes, and another agent is to be asked."""
STANDS_BY, NOTHING_WANTED = b"stands-by ", b"nothing-wanted "
"""What it is told: that another agent would take its place; that a trainer wants nothing sent. See
:mod:`goodput_plugins.agent.succession`."""
LONGEST_WAIT = 86_400.0
"""No exit waits longer, s, whatever it was told; a socket takes no time beyond some years."""
RETRY = 0.05
"""While the agent is not there yet it is asked again after so long, s."""
STARTING = 5.0
"""An agent that is not there after so long does not come, s."""

_ORCHESTRATORS = ("KUBERNETES_SERVICE_HOST", "CLOUD_ML_JOB_ID")
"""Set in a pod, and in a job of Vertex AI: there a container goes when its process ends."""
_SHELL = "/bin/sh"
_IN_BACKGROUND = '"$@" &'
_BUCKET = "the bucket"
_NEEDS = {
    _BUCKET: ("gcsfs", "gcp"),
    "cloud-logging": ("google/cloud/logging_v2", "gcp"),
    "cloud-monitoring": ("google/cloud/monitoring_v3", "gcp"),
    "tensorboard": ("tensorboardX", "tensorboard"),
    "prometheus": ("prometheus_client", "prometheus"),
}
"""The package that each exporter imports, and our extra that brings it."""


def missing(exporters: list[str]) -> list[str]:
    """Which of these exporters lack their library; looked for without importing anything."""
    return [name for name in exporters if name in _NEEDS and not _is_installed(_NEEDS[name][0])]


def installed(exporters: list[str]) -> list[str]:
    """Those of these exporters that have their library; of the others it is said what to install."""
    lacking = missing(exporters)
    if lacking:
        extras = ",".join(dict.fromkeys(_NEEDS[name][1] for name in lacking))
        say(
            f"nothing is sent to {' or '.join(lacking)}: the library for it is not installed;",
            f"pip install 'goodput-plugins[{extras}]'. Training goes on and is recorded.",
        )
    return [name for name in exporters if name not in lacking]


def tell_agent(folder: Path, wanted: Mapping[str, object]) -> None:
    """Write down what the script asks for; where that is nothing, what an earlier process asked for goes."""
    import json

    path = folder / MONITOR
    if not wanted:
        path.unlink(missing_ok=True)
        return
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    beside.write_text(json.dumps(wanted))
    beside.replace(path)


def warn_if_ephemeral(folder: Path, environ: Mapping[str, str]) -> None:
    """Say so if nothing will be left of a run's folder after its container."""
    if not any(environ.get(name) for name in _ORCHESTRATORS):
        return
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        kind = file_system(fd)
    finally:
        os.close(fd)
    if kind in ("overlay", "tmpfs"):
        say(
            f"the journals lie in {folder}, on the disk of this container, which ends with it.",
            "Set GOODPUT_EXPORTERS=cloud-logging, or GOODPUT_DIR to a volume that stays.",
        )


def google_cloud_is_at_hand(environ: Mapping[str, str], endpoint: env.Variable = env.LOGGING_ENDPOINT) -> bool:
    """Whether anything says that a project of Google Cloud can be reached from here; asks no network.

    Args:
        environ: the environment.
        endpoint: which variable may name another address of the service.
    """
    named = (env.PROJECT.name, env.CLOUD_PROJECT.name, endpoint.name, "GOOGLE_APPLICATION_CREDENTIALS")
    if any(environ.get(name) for name in named):
        return True
    try:
        with open("/sys/class/dmi/id/product_name") as product:
            return "Google" in product.read()
    except OSError:
        return False


def _is_installed(package: str) -> bool:
    return any(os.path.isdir(os.path.join(place or ".", package)) for place in sys.path)


class Shipper:
    """Starts the agent of a run, and waits for it.

    Args:
        environ: the environment; the agent gets it without the switch.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._asked: dict[str, str] = {}
        self._monitors: Mapping[str, object] | None = None
        self._folder: Path | None = None
        self._since = 0.0

    def ask(self, exporter: str, logger: str = "") -> bool:
        """The script asks for an exporter, and a log's name; False if that changes nothing any more."""
        if exporter in self._asked or env.EXPORTERS.read(self._environ):
            return False
        self._asked[exporter] = logger
        return True

    def monitor(self, wanted: Mapping[str, object]) -> bool:
        """The script's monitors want this by now; False if nothing is to be sent at all."""
        if env.EXPORTERS.read(self._environ) == "off":
            return False
        self._monitors = wanted
        return True

    def start(self, run: str, folder: Path) -> None:
        """Start the agent of a run, if anything is to be sent; tell it what the script asks for.

        Args:
            run: the run's name.
            folder: that of the run's journals.
        """
        asked = {ASKED: self._asked} if self._asked else {}
        tell_agent(folder, {**asked, **(self._monitors or {})})
        if self._folder is not None:
            return
        exporters = env.words(env.EXPORTERS.read(self._environ)) or list(self._asked)
        if rundir.remote(self._environ).startswith("gs://"):
            exporters = [_BUCKET, *exporters]
        if not exporters:
            warn_if_ephemeral(folder, self._environ)
        wanted = [name for name in installed(exporters) if name != "off"]
        if not wanted and self._monitors is None:
            with suppress(OSError, ImportError, AttributeError):  # no agent of an earlier process, or no such sockets
                _tell_nothing_is_wanted(folder)
            return
        try:
            _spawn(_command(run), self._environ_of(folder, wanted), folder / LOG)
        except (OSError, NotImplementedError) as error:
            say(
                f"the agent that sends what is recorded could not be started ({error}).",
                f"Training goes on and is recorded; `goodput agent {run}` starts it by hand.",
            )
            return
        self._folder, self._since = folder, time.monotonic()

    def wait(self) -> None:
        """Give the agent time to send the rest: ``$GOODPUT_FLUSH_TIMEOUT`` at most; Ctrl-C ends it."""
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with suppress(OSError, KeyboardInterrupt):  # there is no agent, or nobody wants to wait
            _ask(folder, float(env.FLUSH_TIMEOUT.read(self._environ)), self._since + STARTING)

    def wait_for_values(self, seconds: float | None) -> None:
        """Give the agent so long to upload the last values; None: ``$GOODPUT_FLUSH_TIMEOUT``."""
        if self._folder is not None:
            patience = float(env.FLUSH_TIMEOUT.read(self._environ)) if seconds is None else seconds
            with suppress(OSError):  # there is no agent, or it takes longer
                _ask(self._folder, patience, self._since + STARTING, VALUES)

    def abandon(self) -> None:
        """This is a forked child: the agent is the parent's."""
        self._folder = None

    def _environ_of(self, folder: Path, exporters: list[str]) -> dict[str, str]:
        environ = {name: value for name, value in self._environ.items() if name != env.PLUGINS.name}
        environ[env.EXPORTERS.name] = ",".join(name for name in exporters if name != _BUCKET) or "off"
        if not rundir.remote(environ):
            environ[env.DIR.name] = str(folder.parent)
        for logger in filter(None, self._asked.values()):
            environ.setdefault(env.LOGGER.name, logger)
        place = Path(__file__).parents[2]
        if place.name not in ("site-packages", "dist-packages"):
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), str(place)]))
        return environ


def _command(run: str) -> list[str]:
    """The agent's; with -P no module of the working directory takes the place of a library."""
    if not sys.executable:
        raise OSError("this interpreter does not know its own path")
    since = str(time.monotonic_ns())
    return [sys.executable, "-P", "-m", "goodput_plugins", "agent", "--since", since, "--", run]


def _spawn(command: list[str], environ: Mapping[str, str], log: Path) -> None:
    """Run a command in a session of its own, in the background, with no descriptor of ours."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited()),
    ]
    shell = os.posix_spawn(
        _SHELL,
        ["sh", "-c", _IN_BACKGROUND, "sh", *command],
        environ,
        file_actions=actions,
        setsid=True,
        setsigmask=(),  # what the script blocks or ignores, the agent does not
        setsigdef=(signal.SIGTERM, signal.SIGCHLD),
    )
    with suppress(OSError):  # the script ignores SIGCHLD, or another thread of it waits for whatever ends
        os.waitpid(shell, 0)


def _inherited() -> list[int]:
    """The descriptors that a new process would get, other than the first three."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except (OSError, ValueError):
            continue
    return found


def _tell_nothing_is_wanted(folder: Path) -> None:
    """Let the agent that an earlier process left behind go.

    Raises:
        OSError: there is none.
    """
    import _socket

    telling = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        telling.setblocking(False)
        telling.sendto(NOTHING_WANTED + b"[%d, {}]" % time.monotonic_ns(), address(folder, AGENT))
    finally:
        telling.close()


def _ask(folder: Path, patience: float, expected: float, what: bytes = ASKS) -> None:
    """Ask the agent to send everything, or the last values, and wait for its answer.

    Raises:
        OSError: it did not answer, or is not there.
    """
    import _socket

    until = time.monotonic() + min(patience, LONGEST_WAIT)
    with_answer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        with_answer.bind(b"")  # a name that only the kernel knows
        while True:
            with_answer.settimeout(max(0.001, until - time.monotonic()))
            try:
                with_answer.sendto(what, address(folder, AGENT))
                if with_answer.recv(len(UNSENT)) != GOES:
                    break
                expected = time.monotonic() + STARTING
            except ConnectionRefusedError:
                if time.monotonic() > min(until, expected):
                    raise
            time.sleep(RETRY)
    finally:
        with_answer.close()
