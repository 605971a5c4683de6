"""SIGTERM: what the host does about it stays as it is, and the notice is recorded where that is possible."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import time

import pytest
from running import Runner, reported

from goodput_plugins.core.events import Event, Kind

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed here")

BEGIN = """
import os, signal, sys, threading, time
from goodput_plugins.core.session import current
recorder = current().recorder
"""
TRAIN = BEGIN + "recorder.step(0)\n"
READY = "print('ready', flush=True)\n"
BETWEEN_BYTECODES = READY + "while True: time.sleep(0.001)\n"
IN_C = "import numpy\nmatrix = numpy.random.rand(2500, 2500)\n" + READY + "numpy.linalg.svd(matrix)\n"
"""Some ten seconds in LAPACK, in which no handler in Python can run."""
FORKS = "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n"
"""Python 3.12 warns where a process with threads forks; the heartbeat is one, as those of JAX, PyTorch or BLAS are."""
HANDLER = "def handler(number, frame):\n    print('mine', number == 15, frame is not None, flush=True)\n"


def terminated(run: Runner, source: str, *, after: float = 0.2, **variables: str) -> tuple[int, float, str, str]:
    """Start a script, send SIGTERM once it is ready: its status, the seconds until its end, its output."""
    process = subprocess.Popen(
        run.command(source),
        env=run.environ(**variables),
        cwd=run.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    shown = ""
    while (line := process.stdout.readline()) != "ready\n":
        shown += line
        assert line, process.communicate()[1]
    time.sleep(after)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    return process.returncode, time.monotonic() - began, shown + out, err


def ends(run: Runner) -> list[tuple[Kind, str | None]]:
    return [(e.kind, e.name) for e in run.recorded()[1] if e.kind in (Kind.NOTICE, Kind.END)]


NOTICE, KILLED = (Kind.NOTICE, "SIGTERM"), (Kind.END, "signal:SIGTERM")


# --- by default ------------------------------------------------------------------------------------


def test_nothing_of_ours_handles_a_signal(run: Runner) -> None:
    source = (
        "import signal\nbefore = [signal.getsignal(number) for number in signal.valid_signals()]\n"
        + TRAIN
        + "assert before == [signal.getsignal(number) for number in signal.valid_signals()]\n"
        "import ctypes\nassert not ctypes.pythonapi.PyOS_getsig(15)\nassert signal.set_wakeup_fd(-1) == -1\n"
    )
    run(source, GOODPUT_PLUGINS="auto")
    code, _, _, err = terminated(run, TRAIN + BETWEEN_BYTECODES)
    assert (code, err) == (-signal.SIGTERM, "")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("leaves", "code"), [("sys.exit(0)", 0), ("raise KeyError('k')", 1), ("os._exit(9)", 9)])
def test_a_handler_of_the_hosts_is_chained(run: Runner, when: str, leaves: str, code: int) -> None:
    install = HANDLER + f"    {leaves}\nsignal.signal(signal.SIGTERM, handler)\n"
    source = BEGIN + (install + "recorder.step(0)\n" if when == "before" else "recorder.step(0)\n" + install)
    source += "assert signal.getsignal(15) is handler and signal.getsignal(signal.SIGTERM) is handler\n"
    plain = source.replace("recorder.step(0)", "pass")
    without_us = terminated(run, plain + BETWEEN_BYTECODES)
    with_us = terminated(run, source + BETWEEN_BYTECODES)
    assert (with_us[0], with_us[2], with_us[3]) == (code, without_us[2], without_us[3])
    assert "mine True True" in with_us[2]
    assert ends(run)[0] == NOTICE


def test_what_the_host_is_told_of_its_handlers_is_what_it_set(run: Runner) -> None:
    talk = (
        "def first(number, frame): print('first', flush=True)\ndef second(*args): print('second', flush=True)\n"
        "def show(handler): print(getattr(handler, '__name__', handler))\n"
        "show(signal.signal(15, first))\nshow(signal.getsignal(15))\n"
        "show(signal.signal(signalnum=signal.SIGTERM, handler=second))\nsignal.raise_signal(15)\n"
        "old = signal.signal(15, signal.getsignal(15)); show(old)\nsignal.raise_signal(15)\n"
        "show(signal.signal(15, signal.SIG_IGN))\nsignal.raise_signal(15)\nshow(signal.getsignal(15))\n"
        "show(signal.signal(15, signal.SIG_DFL))\nshow(signal.signal(15, first))\nsignal.raise_signal(15)\n"
        "for wrong in ((15, 'text'), (15,), (99, first), (9, first)):\n"
        "    try: signal.signal(*wrong)\n    except Exception as error: print(type(error), error)\n"
        "def elsewhere():\n    try: signal.signal(15, first)\n    except ValueError as error: print(error)\n"
        "thread = threading.Thread(target=elsewhere); thread.start(); thread.join()\n"
        "print(signal.signal.__name__, signal.getsignal.__doc__, signal.SIGTERM)\n"
    )
    heard = []
    for note in ("chain", "note"):
        for begin in (BEGIN, TRAIN):
            heard.append(run(begin + talk, GOODPUT_SIGTERM=note))
    assert {(done.stdout, done.stderr) for done in heard} == {(heard[0].stdout, heard[0].stderr)}
    assert heard[0].stdout.count("second") > 2


def test_a_loop_of_asyncio_that_handles_it_is_chained(run: Runner) -> None:
    source = TRAIN + (
        "import asyncio\nasync def main():\n    stop = asyncio.Event()\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)\n"
        f"    {READY}    await stop.wait()\n    print('stopped')\nasyncio.run(main())\n"
    )
    for note in ("chain", "note"):
        code, seconds, out, err = terminated(run, source, GOODPUT_SIGTERM=note)
        assert (code, out, err) == (0, "stopped\n", "") and seconds < 5
        assert ends(run) == [NOTICE, (Kind.END, "completed")]
        run.journals[0].unlink()


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "done.append(1)"])
def test_a_notice_that_is_followed_by_a_resume_is_a_disruption(run: Runner, leaves: str) -> None:
    source = (
        BEGIN
        + f"done = []\ndef handler(*args): {leaves}\nsignal.signal(15, handler)\n"
        + "for number in range(3): recorder.step(number)\n"
        + READY
        + "while not done: time.sleep(0.001)\n"
    )
    code, *_ = terminated(run, source, GOODPUT_RUN_NAME="r")
    assert code == 0
    run(BEGIN + "for number in range(3, 6): recorder.step(number)\n", GOODPUT_RUN_NAME="r")
    report = reported(run.runs / "r")
    assert report["disruptions"] == 1 and report["attempts"][0]["exit"] == "completed"
    assert report["excluded_seconds"] == 0


def test_ctrl_c_stays_untouched(run: Runner) -> None:
    source = TRAIN + "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    for note in ("chain", "note"):
        run(source + "signal.raise_signal(signal.SIGINT)\n", code=-signal.SIGINT, GOODPUT_SIGTERM=note)
        assert ends(run) == [(Kind.END, "user")]
        run.journals[0].unlink()


# --- GOODPUT_SIGTERM=note --------------------------------------------------------------------------


@pytest.mark.parametrize("place", [BETWEEN_BYTECODES, IN_C], ids=["between bytecodes", "in a long C call"])
def test_on_request_it_is_recorded_and_then_ends_the_process_at_once(run: Runner, place: str) -> None:
    before = time.time_ns()
    code, seconds, _, err = terminated(run, TRAIN + place, GOODPUT_SIGTERM="note")
    assert (code, err) == (-signal.SIGTERM, "")
    assert seconds < 4
    assert ends(run) == [NOTICE, KILLED]
    last: Event = run.recorded()[1][-1]
    assert before < last.time < time.time_ns()


def test_a_sigterm_that_is_recorded_is_a_disruption(run: Runner) -> None:
    terminated(run, TRAIN + BETWEEN_BYTECODES, GOODPUT_SIGTERM="note", GOODPUT_RUN_NAME="r")
    run(TRAIN, GOODPUT_RUN_NAME="r")
    report = reported(run.runs / "r")
    assert report["disruptions"] == 1 and report["attempts"][0]["exit"] == "signal:SIGTERM"


def test_nothing_runs_that_would_not_run_without_us(run: Runner) -> None:
    source = TRAIN + "import atexit\natexit.register(print, 'at exit')\ntry:\n"
    source += "".join(f"    {line}\n" for line in BETWEEN_BYTECODES.splitlines()) + "finally: print('finally')\n"
    _, _, out, _ = terminated(run, source, GOODPUT_SIGTERM="note")
    assert out == ""


def test_the_host_sees_no_handler(run: Runner) -> None:
    source = TRAIN + (
        "assert signal.getsignal(15) == signal.SIG_DFL\nassert signal.signal(15, print) == signal.SIG_DFL\n"
        "assert signal.signal(15, signal.SIG_DFL) is print\nassert signal.getsignal(15) == signal.SIG_DFL\n"
        "assert signal.set_wakeup_fd(-1) == -1 and signal.set_wakeup_fd(-1) == -1\n"
        "read, write = os.pipe(); os.set_blocking(write, False)\n"
        "assert signal.set_wakeup_fd(write) == -1 and signal.set_wakeup_fd(-1) == write\n"
    )
    code, seconds, _, err = terminated(run, source + IN_C, GOODPUT_SIGTERM="note")
    assert (code, err) == (-signal.SIGTERM, "") and seconds < 4
    assert ends(run) == [NOTICE, KILLED]


def test_another_user_of_the_wakeup_descriptor_keeps_it(run: Runner) -> None:
    source = (
        BEGIN
        + "read, write = os.pipe(); os.set_blocking(write, False); signal.set_wakeup_fd(write)\nrecorder.step(0)\n"
        + "signal.signal(signal.SIGUSR1, lambda *args: None)\nsignal.raise_signal(signal.SIGUSR1)\n"
        + "assert os.read(read, 9) == bytes([signal.SIGUSR1]) and signal.set_wakeup_fd(write) == write\n"
    )
    code, *_ = terminated(run, source + BETWEEN_BYTECODES, GOODPUT_SIGTERM="note")
    assert code == -signal.SIGTERM
    assert ends(run) == [NOTICE, KILLED]


def test_a_handler_that_the_host_installs_later_is_chained_and_decides(run: Runner) -> None:
    source = TRAIN + HANDLER + "signal.signal(15, handler)\n" + READY + "time.sleep(1)\nsys.exit(5)\n"
    code, _, out, _ = terminated(run, source, GOODPUT_SIGTERM="note")
    assert (code, out) == (5, "mine True True\n")
    assert ends(run) == [NOTICE, (Kind.END, "exception:SystemExit")]


def test_a_child_that_is_told_to_end_does_not_end_its_parent(run: Runner) -> None:
    source = (
        FORKS + TRAIN + "for _ in range(30):\n    pid = os.fork()\n"
        "    if pid == 0:\n        time.sleep(60)\n"
        "    os.kill(pid, 15)\n    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -15\n"
        "import multiprocessing, subprocess\n"
        "with multiprocessing.get_context('fork').Pool(3) as pool: assert pool.map(abs, [-1]) == [1]\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "child.terminate(); assert child.wait() == -15\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
    )
    done = run(source, GOODPUT_SIGTERM="note")
    assert done.stderr == ""
    assert ends(run) == [(Kind.END, "completed")]


def test_a_process_that_was_asked_to_ignore_it_ignores_it(run: Runner) -> None:
    source = "import signal\nsignal.signal(15, signal.SIG_IGN)\n" + TRAIN + READY + "time.sleep(0.5)\nprint('there')\n"
    code, _, out, _ = terminated(run, source, after=0.1, GOODPUT_SIGTERM="note")
    assert (code, out) == (0, "there\n")
    assert ends(run) == [(Kind.END, "completed")]


def test_a_handler_behind_pythons_back_stays(run: Runner) -> None:
    source = (
        "import ctypes, signal\ngot = []\nnote = ctypes.CFUNCTYPE(None, ctypes.c_int)(got.append)\n"
        "libc = ctypes.CDLL(None)\nlibc.signal.argtypes = ctypes.c_int, ctypes.c_void_p\n"
        "libc.signal(15, ctypes.cast(note, ctypes.c_void_p))\n" + TRAIN + "signal.raise_signal(15); print(got)\n"
    )
    done = run(source, GOODPUT_SIGTERM="note")
    assert done.stdout == "[15]\n"
    assert done.stderr.count("GOODPUT_SIGTERM=note does nothing here") == 1 and len(done.stderr.splitlines()) == 1


# --- JAX's preemption service ----------------------------------------------------------------------

PREEMPTED = """
import os, signal, sys, time
{before}
import jax
jax.distributed.initialize("localhost:" + sys.argv[-1] if sys.argv[1:] else "localhost:{port}", 1, 0)
import jax.numpy as jnp, optax
step = jax.jit(lambda p: optax.apply_updates(p, -p))
for _ in range(3): p = step(jnp.ones(3))
from jax.experimental import multihost_utils
os.kill(os.getpid(), 15)
number, reached = 0, False
while not reached and number < 200:
    reached = multihost_utils.reached_preemption_sync_point(number); number += 1; time.sleep(0.02)
print("reached", reached, signal.getsignal(15))
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return int(server.getsockname()[1])


RECORDING = "from goodput_plugins.core.session import current; current().recorder.training_begins()"


@needs_jax
@pytest.mark.parametrize(
    ("note", "before"),
    [("note", ""), ("chain", RECORDING), ("note", RECORDING), ("note", "signal.signal(15, print)")],
    ids=["alone", "recording before without a note", "recording before", "a handler before"],
)
def test_jax_keeps_its_preemption_service(run: Runner, note: str, before: str) -> None:
    source = PREEMPTED.format(before=before, port=free_port())
    done = run(source, GOODPUT_PLUGINS="auto", GOODPUT_SIGTERM=note, JAX_PLATFORMS="cpu")
    assert done.stdout.startswith("reached True"), done.stderr
    shown = done.stdout.split(maxsplit=2)[2].strip()
    assert shown == ("<built-in function print>" if "print" in before else str(signal.SIG_DFL))
    assert ends(run)[-1] == (Kind.END, "completed")


@pytest.mark.skipif(not hasattr(os, "unshare") and os.geteuid() != 0, reason="needs the right to begin a pid namespace")
def test_the_first_process_of_a_container_outlives_it_as_ever(run: Runner) -> None:
    """The kernel's default action for SIGTERM does not end a process 1."""
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        *run.command(
            TRAIN + "assert os.getpid() == 1\nos.kill(1, 15)\ntime.sleep(0.5)\nrecorder.step(1)\nprint('there')\n"
        ),
    ]
    done = subprocess.run(
        command, env=run.environ(GOODPUT_SIGTERM="note"), cwd=run.folder, capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout, done.stderr) == (0, "there\n", "")
    told = ends(run)
    assert told[0] == NOTICE and told[-1] == (Kind.END, "completed")
