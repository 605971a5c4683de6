"""The switch: what GOODPUT_PLUGINS arms, what it costs, and that a plugin's fault stays its own."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from running import Runner

from goodput_plugins.auto.plugins import TABLE, TIMED, Plugin
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity, Kind

OURS = "import sys; print(sorted(name for name in sys.modules if name.startswith('goodput_plugins')))"
ARM = """
import sys
from goodput_plugins.auto.arming import arm
from goodput_plugins.auto.plugins import Plugin
def plugin(name, *, since="0", **hooks):
    return Plugin(name, distribution="numpy", library="numpy", since=since, hooks=hooks, sees=("OTHER",))
"""


# --- what arms it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "off"])
def test_off_or_unset_imports_nothing(run: Runner, value: str | None) -> None:
    assert run(OURS, **({} if value is None else {"GOODPUT_PLUGINS": value})).stdout == "[]\n"


@pytest.mark.parametrize("value", ["OFF", " off "])
def test_off_is_off_however_it_is_spelled(run: Runner, value: str) -> None:
    finders = run("import sys; print([type(finder).__name__ for finder in sys.meta_path])", GOODPUT_PLUGINS=value)
    assert "Finder" not in finders.stdout.split("'")


@pytest.mark.parametrize("value", ["auto", "jax", "orbax, jax"])
def test_on_loads_the_finder_and_its_table_only(run: Runner, value: str) -> None:
    loaded = run(OURS + "; assert not {'typing', 'threading', 'enum'} & set(sys.modules)", GOODPUT_PLUGINS=value)
    assert loaded.stdout.split("'")[1::2] == [
        "goodput_plugins",
        *(f"goodput_plugins.{name}" for name in ("auto", "auto.arming", "auto.imports", "auto.plugins")),
        *(f"goodput_plugins.{name}" for name in ("core", "core.ending", "environ")),
    ]


@pytest.mark.parametrize("flags", [["-c", "pass"], ["-m", "pip", "list"], ["-I", "-c", "import numpy"]])
def test_programs_that_do_not_train_leave_no_trace(run: Runner, flags: list[str]) -> None:
    command = [sys.executable, *flags]
    variables = run.environ(GOODPUT_PLUGINS="auto", PIP_DISABLE_PIP_VERSION_CHECK="1")
    done = subprocess.run(command, env=variables, cwd=run.folder, capture_output=True, text=True, check=False)
    assert "goodput:" not in done.stderr and list(run.folder.iterdir()) == []
    without = subprocess.run(command, env=run.environ(), cwd=run.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (without.returncode, without.stdout, without.stderr)


def test_an_armed_interpreter_starts_in_less_than_twice_the_time(run: Runner) -> None:
    def start(switch: str | None) -> float:
        variables = run.environ(PYTHONPYCACHEPREFIX=str(run.folder)) | ({"GOODPUT_PLUGINS": switch} if switch else {})
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=variables, check=True)
        return time.perf_counter() - began

    start("auto")
    pairs = [(start(None), start("auto")) for _ in range(20)]
    off, on = map(min, zip(*pairs, strict=True))  # the quickest of each: a busy machine only adds
    assert on < 2 * off


# --- what it tells ---------------------------------------------------------------------------------


def test_a_plugin_that_there_is_not_is_told_once_training_may_begin(run: Runner) -> None:
    done = run("import numpy; print('trained')", GOODPUT_PLUGINS="jax,lightening")
    assert done.stdout == "trained\n" and len(done.stderr.splitlines()) == 1
    assert "lightening" in done.stderr and all(plugin.name in done.stderr for plugin in TABLE)


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        ("off,jax,orbax", "off is ignored, and these are asked for: jax, orbax"),
        ("auto,jax", "all plugins are armed"),
        ("off,auto", "all plugins are armed"),
        ("off,off", ""),
        ("auto", ""),
        ("jax,orbax", ""),
    ],
)
def test_words_that_exclude_each_other_are_one_warning_that_says_what_is_done(
    run: Runner, asked: str, done: str
) -> None:
    said = run("import numpy; print('trained')", GOODPUT_PLUGINS=asked).stderr
    assert said.count("mixes what excludes each other") == bool(done) and done in said


def test_an_unknown_variable_is_told_once_and_by_the_primary_only(run: Runner) -> None:
    script = "import numpy\nfrom goodput_plugins.core.session import current\ncurrent().recorder.step(0)\n"
    done = run(script, GOODPUT_PLUGINS="auto", GOODPUT_RUNNAME="x")
    assert done.stderr.count("GOODPUT_RUNNAME") == 1 and "GOODPUT_RUN_NAME" in done.stderr
    assert run(script, GOODPUT_RUNNAME="x").stderr.count("GOODPUT_RUNNAME") == 1  # by hand
    assert run(script, GOODPUT_PLUGINS="auto", GOODPUT_RUNNAME="x", RANK="1").stderr == ""


@pytest.mark.parametrize(("asked", "loud"), [("mine", True), ("auto", False)])
def test_a_library_that_is_too_old_is_told_if_asked_by_name(run: Runner, asked: str, loud: bool) -> None:
    mine = "plugin('mine', since='99', numpy='nowhere:install')"
    done = run(ARM + f"arm([{mine}], {{'GOODPUT_PLUGINS': {asked!r}}})\nimport numpy\n")
    assert len(done.stderr.splitlines()) == loud
    assert ("pip install 'numpy>=99'" in done.stderr) == loud


@pytest.mark.parametrize(("asked", "loud"), [("mine", True), ("auto", False)])
def test_a_library_that_is_not_installed_is_told_if_asked_by_name(run: Runner, asked: str, loud: bool) -> None:
    library = "distribution='absent', library='absent.part', since='1', hooks={'absent.part': 'a:b'}"
    absent = f"Plugin('mine', {library}, sees=())"
    done = run(ARM + f"arm([{absent}], {{'GOODPUT_PLUGINS': {asked!r}}})\nimport numpy\n")
    assert len(done.stderr.splitlines()) == loud
    assert ("pip install 'absent>=1'" in done.stderr) == loud


# --- installing ------------------------------------------------------------------------------------


def install(run: Runner, body: str) -> None:
    """Write the module ``adapter`` with an ``install`` of this body; it hooks the module ``loop``."""
    (run.folder / "loop.py").write_text("def train(): return 'trained'\n")
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (run.folder / "adapter.py").write_text(
        "from goodput_plugins.core.patching import around\n\ndef install(module, hooks):\n" + lines
    )


ARM_ADAPTER = ARM + "arm([plugin('mine', loop='adapter:install')], {'GOODPUT_PLUGINS': 'mine'})\n"
COUNT = "around(hooks.patches, module, 'train', hooks.guard, before=lambda: hooks.recorder.step())"


def test_a_plugin_is_installed_when_its_framework_is_imported(run: Runner) -> None:
    install(run, COUNT)
    run(ARM_ADAPTER + "import loop\nfor _ in range(3): assert loop.train() == 'trained'\n")
    _, events = run.recorded()
    assert [event.kind for event in events].count(Kind.STEP) == 3
    (armed,) = (event for event in events if event.kind is Kind.PLUGIN)
    assert armed.name == "mine" and armed.data["sees"] == ["OTHER"] and armed.data["version"][0].isdigit()


@pytest.mark.parametrize("again", ["importlib.reload(loop)", "sys.modules.pop('loop'); import loop"])
def test_a_framework_that_is_imported_again_counts_once(run: Runner, again: str) -> None:
    (run.folder / "engine.py").write_text("def train(): return 'trained'\n")
    install(run, COUNT.replace("module,", "__import__('engine'),"))
    run(ARM_ADAPTER + f"import importlib, engine, loop\n{again}\n{again}\nengine.train()\n")
    _, events = run.recorded()
    assert [event.kind for event in events].count(Kind.STEP) == 1
    assert [event.kind for event in events].count(Kind.PLUGIN) == 1


def test_a_plugin_that_cannot_be_installed_is_off_and_leaves_no_patch(run: Runner) -> None:
    install(run, COUNT + "\nmodule.absent")
    script = "import loop\nassert loop.train() == 'trained' and loop.train.__module__ == 'loop'\n"
    done = run(ARM_ADAPTER + script + "assert not hasattr(loop.train, '__wrapped__')\n")
    assert done.stderr.count("Traceback") == 1 and "the plugin 'mine' failed and is off" in done.stderr
    assert not run.runs.exists()


def test_a_plugin_that_is_broken_itself_does_not_reach_the_import(run: Runner) -> None:
    install(run, "pass")
    (run.folder / "adapter.py").write_text("x = = 1\n")
    done = run(ARM_ADAPTER + "import loop\nprint(loop.train())\n")
    assert done.stdout == "trained\n" and "the plugin 'mine' failed" in done.stderr


def test_a_fault_of_the_switch_itself_does_not_reach_the_interpreter(run: Runner) -> None:
    broken = "import sys\nsys.modules['goodput_plugins.auto.arming'] = None\n"
    done = run(broken + "from goodput_plugins.auto import boot\nboot()\nprint('trained')\n", GOODPUT_PLUGINS="off")
    assert done.stdout == "trained\n" and "the switch GOODPUT_PLUGINS failed" in done.stderr


def test_a_thread_of_a_failed_plugin_is_stopped_all_the_same(run: Runner) -> None:
    install(run, "hooks.at_close.append(lambda: print('stopped'))\nraise ValueError")
    assert run(ARM_ADAPTER + "import loop\n").stdout == "stopped\n"


def test_booting_twice_is_booting_once(run: Runner) -> None:
    run(
        "import sys\nfrom goodput_plugins.auto import boot\nboot()\n"
        "assert [type(finder).__name__ for finder in sys.meta_path].count('Finder') == 1\n",
        GOODPUT_PLUGINS="auto",
    )


# --- the table and the real frameworks -------------------------------------------------------------


@pytest.mark.parametrize("plugin", TABLE, ids=lambda plugin: plugin.name)
def test_every_entry_of_the_table_is_real(plugin: Plugin) -> None:
    assert set(plugin.sees) <= set(Bucket)
    if importlib.util.find_spec(plugin.library.partition(".")[0]) is None:
        pytest.skip(f"{plugin.distribution} is not installed here")
    for trigger, where in plugin.hooks.items():
        module, _, function = where.partition(":")
        importlib.import_module(trigger)
        assert callable(getattr(importlib.import_module(module), function))
    assert plugin.works_with(sys.modules[plugin.library].__version__)


@pytest.mark.parametrize(
    ("version", "works"),
    [("0.10", True), ("0.10.2", True), ("0.9.9", False), ("0.12.0.1", True), ("0.10.0.dev1", True), ("1.0+cpu", False)],
)
def test_versions_are_compared_as_numbers(version: str, works: bool) -> None:
    plugin = Plugin("x", distribution="x", library="x", since="0.10", before="1", hooks={}, sees=())
    assert plugin.works_with(version) == works


FRAMEWORKS = ("numpy", *(trigger for plugin in TABLE for trigger in plugin.hooks))
IMPORTED_ONE_BY_ONE = """
import importlib, json, sys, time
seconds, news = 0.0, []
for name in sys.argv[1:]:
    for end in [place for place, letter in enumerate(name + ".") if letter == "."]:  # a package, then what is in it
        news += [name[:end]] if name[:end] not in sys.modules else []
        began = time.time()
        importlib.import_module(name[:end])
        seconds += time.time() - began
from goodput_plugins.core.session import current
current().recorder.step(0)
print(json.dumps([seconds, news, [importlib.import_module(name).__spec__.origin for name in sys.argv[1:]]]))
"""


@pytest.mark.parametrize("ordered", [sorted, lambda names: sorted(names, reverse=True)], ids=["a to z", "z to a"])
def test_real_frameworks_arm_their_plugins_and_have_their_imports_timed(
    run: Runner, ordered: Callable[[Iterable[str]], list[str]]
) -> None:
    names = ordered(name for name in FRAMEWORKS if importlib.util.find_spec(name.partition(".")[0]))
    done = run(IMPORTED_ONE_BY_ONE.replace("sys.argv[1:]", repr(names)), GOODPUT_PLUGINS="auto")
    assert done.stderr == ""
    _, events = run.recorded()
    armed = {event.name for event in events if event.kind is Kind.PLUGIN}
    assert armed == {plugin.name for plugin in TABLE if set(plugin.hooks) & set(names)}
    spans = [event for event in events if event.kind is Kind.SPAN and event.activity is Activity.IMPORT]
    for first, second in itertools.pairwise(spans):
        assert first.time + (first.duration or 0) <= second.time
    seconds, news, origins = json.loads(done.stdout)
    ours = Path(importlib.import_module("goodput_plugins").__file__ or "").parent
    assert len(origins) == len(names) and not [path for path in origins if Path(path).is_relative_to(ours)]
    told, watched = [event.name for event in spans], {*TIMED, *FRAMEWORKS}
    assert len(set(told)) == len(told) and set(told) <= watched
    assert [name for name in told if name in news] == [name for name in news if name in watched]
    assert abs(sum(event.duration or 0 for event in spans) / 1e9 - seconds) < 0.15 * seconds + 0.2


def test_a_missing_framework_fails_as_it_does_without_us(run: Runner) -> None:
    names = [name for name in ("torch", "tensorflow", "haiku") if importlib.util.find_spec(name) is None]
    assert names
    for name in names:
        with_us, without = (run(f"import {name}\n", code=1, **switch) for switch in ({"GOODPUT_PLUGINS": "auto"}, {}))
        assert with_us.stderr == without.stderr and "ModuleNotFoundError" in with_us.stderr


def test_our_package_loads_no_framework_and_no_dependency(run: Runner) -> None:
    source = "import sys\nbefore = set(sys.modules)\nimport goodput_plugins\nprint(sorted(set(sys.modules) - before))\n"
    done = run(source)
    assert done.stdout == "['__future__', 'goodput_plugins']\n"
    script = "import sys, goodput_plugins.core.session, goodput_plugins.auto.arming\nprint(*sys.modules)\n"
    loaded = {name.partition(".")[0] for name in run(script).stdout.split()}
    strangers = loaded - set(sys.stdlib_module_names) - {"goodput_plugins", "__main__", "_distutils_hack"}
    assert {name for name in strangers if not name.startswith(("__editable", "sitecustomize"))} == set()
