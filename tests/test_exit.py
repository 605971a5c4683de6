"""However a process ends, it ends as it would without us: code, output and traceback; and the end is recorded."""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from running import Runner, reported

from goodput_plugins.core.exits import status

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed here")

TRAIN = """
import os, signal, sys, threading, time, traceback
import jax, jax.numpy as jnp, optax
optimizer = optax.sgd(0.1)

@jax.jit
def train_step(params, x):
    gradients = jax.grad(lambda p: ((x @ p) ** 2).mean())(params)
    updates, _ = optimizer.update(gradients, optimizer.init(params))
    return optax.apply_updates(params, updates), jnp.tanh(x @ x).sum()

x = jnp.ones((1200, 1200))
params = jnp.ones(1200)
for _ in range(3):
    params, loss = train_step(params, x)  # the last ones are still in flight when the script ends
"""
PLAIN = """
import atexit, os, signal, sys, threading, time
import numpy
if "GOODPUT_PLUGINS" in os.environ:
    from goodput_plugins.core.session import current
    current().recorder.step(0)
"""


@dataclass
class End:
    """One way to end.

    Attributes:
        lines: the last lines of the script.
        code: its exit status.
        told: how the journal names it; None if nothing of ours can know.
        exit_code: the code that the journal tells.
    """

    lines: str
    code: int
    told: str | None
    exit_code: int | None = None


ENDS = {
    "normal": End("print('done')", 0, "completed"),
    "exception": End("def f(): raise ValueError('no')\nf()", 1, "exception:ValueError"),
    "chained exception": End(
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error",
        1,
        "exception:KeyError",
    ),
    "exception group": End(
        "def f(): raise ValueError('one')\ntry: f()\nexcept ValueError as error:\n"
        "    raise ExceptionGroup('several', [error, OSError(2, 'two')])",
        1,
        "exception:ExceptionGroup",
    ),
    "sys.exit(3)": End("def f(): sys.exit(3)\nf()", 3, "exception:SystemExit", 3),
    "sys.exit(text)": End("sys.exit('text')", 1, "exception:SystemExit", 1),
    "sys.exit(-1)": End("sys.exit(-1)", 255, "exception:SystemExit", 255),
    "sys.exit()": End("sys.exit()", 0, "completed"),
    "sys.exit(())": End("sys.exit(())", 1 if sys.version_info < (3, 12) else 0, "completed"),
    "sys.exit(0)": End("sys.exit(0)", 0, "completed"),
    "exit(4)": End("exit(4)", 4, "exception:SystemExit", 4),
    "exit during an exception": End(
        "try:\n    1 / 0\nexcept ZeroDivisionError: sys.exit(5)", 5, "exception:SystemExit", 5
    ),
    "exit after Ctrl-C": End(
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: sys.exit(0)", 0, "user", 0
    ),
    "an exit that was caught": End(
        "for code in (0, 7):\n    try: sys.exit(code)\n    except SystemExit as error: print(error.code)",
        0,
        "completed",
    ),
    "an exit that was caught and kept": End(
        "try: sys.exit(7)\nexcept SystemExit as error: kept = error\n"
        "if 'train_step' in globals(): train_step(params, x)\nelif 'current' in globals(): current().recorder.step(1)",
        0,
        None,
    ),
    "an exit that is kept by a cycle": End(
        "def f():\n    try: sys.exit(6)\n    except SystemExit as error:\n        kept = error\n        raise\nf()",
        6,
        "exception:SystemExit",
        6,
    ),
    "an exit of a thread": End(
        "thread = threading.Thread(target=sys.exit, args=(7,)); thread.start(); thread.join()", 0, "completed"
    ),
    "an exit with a finalizer": End(
        "class Late:\n    def __del__(self): print('late', flush=True)\ndef f():\n    late = Late()\n    sys.exit(8)\n"
        "import atexit; atexit.register(print, 'at exit', flush=True)\nf()",
        8,
        "exception:SystemExit",
        8,
    ),
    "Ctrl-C": End("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "user"),
    "exception of a thread": End(
        "def f(): raise OSError('t')\nthread = threading.Thread(target=f, name='t'); thread.start(); thread.join()",
        0,
        "completed",
    ),
    "exception at exit": End("import atexit; atexit.register(lambda: 1 / 0)", 0, "completed"),
    "a thread that goes on": End(
        "threading.Thread(target=lambda: (time.sleep(0.3), print('late')), name='late').start()", 0, "completed"
    ),
    "a daemon thread": End(
        "threading.Thread(target=lambda: time.sleep(60), daemon=True).start(); time.sleep(0.01)", 0, "completed"
    ),
    "os._exit(6)": End("os._exit(6)", 6, None),
    "SIGTERM": End("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", -signal.SIGTERM, None),
    "SIGKILL": End("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, None),
    "abort": End("os.abort()", -signal.SIGABRT, None),
    "SIGSEGV": End("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, None),
}
WITH_DEVICE = (
    "normal",
    "sys.exit(3)",
    "an exit that is kept by a cycle",
    "Ctrl-C",
    "os._exit(6)",
    "SIGTERM",
    "a thread that goes on",
)
OF_DEVICE = """
@jax.jit
def bad(x):
    raise ValueError("inside")
def in_a_wrapped_call(): train_step(params, "text")
def inside_tracing(): bad(x)
def in_a_gradient(): jax.grad(lambda p: {}["k"])(1.0)
def in_lowering(): train_step.lower(params, "text")
for raises in (in_a_wrapped_call, inside_tracing, in_a_gradient, in_lowering):
    try: raises()
    except Exception: traceback.print_exc()
in_a_wrapped_call()
"""


def ended(run: Runner, source: str, **variables: str) -> tuple[int, str, str]:
    done = run(source, code=None, **variables)
    return done.returncode, done.stdout, re.sub(r"0x[0-9a-f]+", "0x", done.stderr)


def check(run: Runner, source: str, end: End, **variables: str) -> str:
    """What is told on stderr, which is the same without us."""
    plain = ended(run, source, **variables)
    assert not run.runs.exists()
    with_us = ended(run, source, GOODPUT_PLUGINS="auto", **variables)
    assert with_us == plain
    assert plain[0] == end.code
    if end.told is not None:
        assert run.ending() == end.told
        last = run.recorded()[1][-1]
        assert (last.data or {}).get("exit_code") == end.exit_code
    else:
        assert run.ending() in (None, "completed")
    return plain[2]


@pytest.mark.parametrize("how", ENDS)
def test_a_process_ends_as_it_does_without_us(run: Runner, how: str) -> None:
    check(run, PLAIN + ENDS[how].lines, ENDS[how])


@needs_jax
@pytest.mark.parametrize("how", WITH_DEVICE)
def test_it_does_so_too_with_work_in_flight_on_the_device(run: Runner, how: str) -> None:
    check(run, TRAIN + ENDS[how].lines, ENDS[how], JAX_PLATFORMS="cpu")


@needs_jax
@pytest.mark.parametrize("filtering", ["auto", "off"])
def test_a_traceback_shows_nothing_of_us(run: Runner, filtering: str) -> None:
    """Four that the script prints, and the one that ends it with work in flight."""
    end = End(OF_DEVICE, 1, "exception:TypeError")
    plain = check(run, TRAIN + end.lines, end, JAX_PLATFORMS="cpu", JAX_TRACEBACK_FILTERING=filtering)
    assert plain.count("\nTypeError: ") >= 3 and "ValueError: inside" in plain and "KeyError: 'k'" in plain


def test_a_raise_of_the_scripts_own_cannot_be_seen(run: Runner) -> None:
    """What the interpreter does with it leaves nothing that an exit function could ask for."""
    run(PLAIN + "raise SystemExit(3)", code=3, GOODPUT_PLUGINS="auto")
    assert run.ending() == "completed"


def test_sys_exit_stays_what_it_was(run: Runner) -> None:
    source = PLAIN + (
        "import copy, pickle\n"
        "assert pickle.loads(pickle.dumps(sys.exit)) is sys.exit and copy.deepcopy(sys.exit) is sys.exit\n"
        "class Parser:\n    leave = sys.exit\n"
        "for call in (lambda: sys.exit(1, 2), lambda: sys.exit(status=1)):\n"
        "    try: call()\n    except TypeError as error: print(error)\n"
        "try: Parser().leave(9)\nexcept SystemExit as error: print(error.code, error.args)\n"
        "print(sys.exit.__name__, sys.exit.__module__, sys.exit.__doc__)\n"
    )
    assert ended(run, source, GOODPUT_PLUGINS="auto") == ended(run, source)


@pytest.mark.parametrize(
    ("code", "as_the_shell_sees_it"), [(None, 0), (0, 0), (3, 3), (256, 0), (-1, 255), (True, 1), ("text", 1), ([], 1)]
)
def test_the_code_is_the_one_that_the_system_tells(run: Runner, code: Any, as_the_shell_sees_it: int) -> None:
    assert status(code) == as_the_shell_sees_it
    run(f"import sys; sys.exit({code!r})", code=as_the_shell_sees_it)


@pytest.mark.parametrize(("exits", "disruptions"), [("sys.exit(3)", 1), ("sys.exit(0)", 0)])
def test_an_exit_with_a_code_is_a_failed_attempt(run: Runner, exits: str, disruptions: int) -> None:
    import_it = "import sys\nfrom goodput_plugins.core.session import current\n"
    steps = import_it + "for number in range({}, {}): current().recorder.step(number)\n"
    run(steps.format(0, 3) + exits, code=None, GOODPUT_RUN_NAME="r")
    run(steps.format(3, 6), GOODPUT_RUN_NAME="r")
    report = reported(run.runs / "r")
    assert report["disruptions"] == disruptions
    first = report["attempts"][0]
    assert first["exit_code"] == (3 if disruptions else None)
    assert first["exit"] == ("exception:SystemExit" if disruptions else "completed")


# --- through our wrappers --------------------------------------------------------------------------

WRAPPED = """
import sys, traceback, warnings
sys.path.insert(0, folder)
import host
if hooked:
    from goodput_plugins.core.guard import Guard
    from goodput_plugins.core.patching import Patches, around
    patches = Patches()
    for owner, name in ((host, "fails"), (host.Thing, "method"), (host.Thing, "of_class"), (host, "warns")):
        around(patches, owner, name, Guard("x"), before=lambda *a, **k: 1, after=lambda token, result, error: 1 / 1)

def caught(call):
    try:
        call()
    except BaseException as error:
        print(type(error), error, [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)])
        print(repr(error.__cause__), repr(error.__context__), error.__suppress_context__)
        print(sys.exc_info()[1] is error)
        traceback.print_exc(file=sys.stdout)

for how in ("value", "from", "context", "none", "group", "exit", "interrupt", "frozen", "stop"):
    caught(lambda: host.fails(how))
    caught(lambda: host.Thing().method(how))
    caught(lambda: host.Thing.of_class(how))
try:
    host.fails("group")
except* ValueError as group:
    traceback.print_exc(file=sys.stdout)
warnings.simplefilter("always")
host.warns()
with warnings.catch_warnings(record=True) as seen:
    host.warns()
print([(w.filename, w.lineno) for w in seen])
host.fails("value")
"""
HOST = """
import dataclasses, warnings
@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    number: int
def fails(how):
    match how:
        case "value": raise ValueError("v")
        case "from": raise KeyError("k") from OSError("o")
        case "context":
            try: raise OSError("o")
            finally: raise KeyError("k")
        case "none": raise KeyError("k") from None
        case "group": raise ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [ValueError("b")])])
        case "exit": raise SystemExit(3)
        case "interrupt": raise KeyboardInterrupt
        case "frozen": raise Frozen(3)
        case "stop": next(iter(()))
def warns():
    warnings.warn("old", DeprecationWarning, stacklevel=2)
class Thing:
    def method(self, how): fails(how)
    @classmethod
    def of_class(cls, how): fails(how)
"""


def test_errors_and_warnings_pass_a_wrapper_as_if_it_were_not_there(run: Runner) -> None:
    (run.folder / "host.py").write_text(HOST)
    plain, hooked = (
        ended(run, f"folder = {str(run.folder)!r}; hooked = {hooked}\n" + WRAPPED) for hooked in (False, True)
    )
    assert "train.py" in plain[2]
    assert hooked == plain
