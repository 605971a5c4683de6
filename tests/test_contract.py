"""What every plugin of the table promises: whatever fails in it, training does not notice.

A plugin that joins the table joins these tests; it only needs a loop in ``training.LOOPS``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from faults import PLUGINS, Entries, armed, triggers
from running import Runner
from training import LOOPS

import goodput_plugins
from goodput_plugins.auto.plugins import TABLE, Plugin
from goodput_plugins.core.events import Activity, Kind

TESTS = Path(__file__).parent
OFF = "failed and is off from here on"
each_plugin = pytest.mark.parametrize("plugin", TABLE, ids=lambda plugin: plugin.name)
each_plugin_here = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)


def told(run: Runner) -> Counter[tuple[Kind, Activity | None]]:
    """How often the one journal tells what; what depends on the moment left out."""
    _, events = run.recorded()
    unsteady = (Kind.DEVICE, Kind.NUMBER, Kind.HEARTBEAT, Kind.SPAN)
    return Counter((event.kind, event.activity) for event in events if event.kind not in unsteady)


def state(places: list[tuple[Any, str]]) -> list[Any]:
    """What stands in these attributes."""
    return [vars(owner).get(name, "nothing") for owner, name in places]


@each_plugin
def test_every_plugin_has_a_loop(plugin: Plugin) -> None:
    assert plugin.name in LOOPS


# --- faults ----------------------------------------------------------------------------------------


def entered(plugin: Plugin, folder: Path) -> list[str]:
    """The functions of ours that the plugin's loop enters, with all plugins armed."""
    entries = Entries()
    with armed(folder / "runs", *PLUGINS), entries.traced():
        LOOPS[plugin.name](folder / "work")
    return list(entries.seen)


def noticed(plugin: Plugin, entries: Iterable[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Where training noticed, or our words were more than one message, as each of these functions failed."""
    train = LOOPS[plugin.name]
    plain = train(folder / "plain")
    wrong = {}
    for number, entry in enumerate(entries):
        planted = Entries(entry)
        try:
            with armed(folder / f"runs-{number}", *PLUGINS), planted.traced():
                result = train(folder / str(number))
        except Exception as error:
            wrong[entry] = repr(error)
            continue
        said = capsys.readouterr().err.count(OFF)
        if result != plain or said > 1:
            wrong[entry] = f"{said} messages, {'the same' if result == plain else 'another'} result"
    return wrong


@pytest.mark.timeout(900)
@each_plugin_here
def test_each_function_of_a_plugin_may_fail_and_training_does_not_notice(
    plugin: Plugin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [entry for entry in entered(plugin, tmp_path) if entry.startswith(plugin.name + "/")]
    assert entries
    assert OFF not in capsys.readouterr().err
    assert not noticed(plugin, entries, tmp_path, capsys)


@pytest.mark.timeout(900)
def test_each_function_of_the_core_may_fail_and_training_does_not_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: set[str] = set()
    for plugin in sorted(PLUGINS, key=lambda plugin: plugin.name != "torch"):  # whose loop is the quickest
        folder = tmp_path / plugin.name
        entries = [entry for entry in entered(plugin, folder) if entry.startswith(("core/", "auto/", "environ"))]
        assert not noticed(plugin, [entry for entry in entries if entry not in tried], folder, capsys)
        tried.update(entries)
    assert {"core/recorder.py:Recorder.step", "core/session.py:Session._open", "core/journal.py:Journal.write"} <= tried


@pytest.mark.timeout(300)
@each_plugin_here
def test_a_plugin_that_fails_while_it_is_installed_leaves_its_framework_as_it_was(
    plugin: Plugin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = Entries()
    with armed(tmp_path) as found, entries.traced():
        found.install(plugin)
        places = found.patched(plugin)
    assert places
    before = state(places)
    ours = [entry for entry in entries.seen if entry.startswith(plugin.name + "/")]
    assert ours
    capsys.readouterr()
    for entry in ours:
        planted = Entries(entry)
        with armed(tmp_path) as found, planted.traced():
            found.install(plugin)
            if planted.failed:
                assert state(places) == before, entry
                assert capsys.readouterr().err.count(OFF) == 1, entry


# --- installing ------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@each_plugin_here
def test_hooks_that_are_installed_twice_count_once_and_leave_nothing_when_they_go(
    plugin: Plugin, tmp_path: Path
) -> None:
    train = LOOPS[plugin.name]
    train(tmp_path / "before")  # what is compiled once a process is compiled now
    once, twice = Runner(tmp_path / "once"), Runner(tmp_path / "twice")
    for run, times in (once, 1), (twice, 2):
        with armed(run.runs, plugin, times=times) as found:
            found.session.recorder.step(0)
            places = found.patched(plugin)
            hooked = state(places)
            train(run.folder)
        assert all(now is not then for now, then in zip(state(places), hooked, strict=True))
    assert told(once) == told(twice)
    assert told(once)[Kind.PLUGIN, None] >= 1 and len(told(once)) >= 4


def modules_named(names: Iterable[str], folder: Path, source: str) -> None:
    """Packages of these names beside a script, each with this in it."""
    for name in names:
        package = folder.joinpath(*name.split("."))
        package.mkdir(parents=True, exist_ok=True)
        for part in (package, *package.parents[: name.count(".")]):
            (part / "__init__.py").write_text(source)


def test_libraries_that_are_too_old_are_not_hooked(run: Runner) -> None:
    """The version alone decides: what stands in for each library has nothing but one."""
    names = [plugin.name for plugin in PLUGINS]
    imported = [name for plugin in PLUGINS for name in (plugin.library, *plugin.hooks)]
    modules_named(imported, run.folder, "__version__ = '998.9'\n")
    old = (
        "import sys\nfrom goodput_plugins.auto.arming import arm\nfrom goodput_plugins.auto.plugins import TABLE\n"
        f"plugins = [plugin for plugin in TABLE if plugin.name in {names}]\n"
        "for plugin in plugins: plugin.since = '999'\n"
        f"arming = arm(plugins, {{'GOODPUT_PLUGINS': {','.join(names)!r}}})\n"
        + "".join(f"import {name}\n" for name in imported)
        + "assert not arming._installed\n"
        "adapters = [name.split('.')[1] for name in sys.modules if name.startswith('goodput_plugins.')]\n"
        f"assert not set({names}) & set(adapters), adapters\n"
    )
    said = run(old).stderr
    assert said.count("goodput: ") == len(PLUGINS)
    for plugin in PLUGINS:
        assert said.count(f"does not know {plugin.distribution} 998.9") == 1, said
        assert said.count(f"pip install '{plugin.distribution}>=999") == 1, said


@pytest.fixture(scope="module")
def without_frameworks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What to import from: numpy and our package, and none of the frameworks."""
    folder = tmp_path_factory.mktemp("packages")
    for name in ("numpy", "numpy.libs"):
        there = Path(sysconfig.get_path("purelib")) / name
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            there = Path(spec.origin).parent
        if there.exists():
            (folder / name).symlink_to(there)
    return [folder, Path(goodput_plugins.__file__).parent.parent]


@each_plugin
def test_a_library_that_is_absent_is_said_if_asked_for_by_name(
    plugin: Plugin, run: Runner, without_frameworks: list[Path]
) -> None:
    script = (
        "from goodput_plugins.auto import boot\nboot()\nimport numpy\n"
        f"try: import {plugin.library}\nexcept ModuleNotFoundError as error: print(error)\n"
    )
    path = os.pathsep.join(map(str, without_frameworks))
    for asked, lines in ((plugin.name, 1), ("auto", 0)):
        done = subprocess.run(
            [sys.executable, "-S", "-c", script],
            env=run.environ(GOODPUT_PLUGINS=asked, PYTHONPATH=path),
            cwd=run.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("No module named ")
        assert len(done.stderr.splitlines()) == lines
        assert (f"pip install '{plugin.requirement}'" in done.stderr) == bool(lines)
    assert list(run.folder.iterdir()) == []


# --- names -----------------------------------------------------------------------------------------


@each_plugin
def test_a_folder_of_the_users_that_is_named_like_a_framework_is_what_it_is_without_us(
    plugin: Plugin, run: Runner
) -> None:
    modules_named(plugin.hooks, run.folder, "def train(): return 'mine'\n")
    script = "".join(f"import {trigger}; print({trigger}.train())\n" for trigger in plugin.hooks)
    plain, hooked = run(script), run(script, GOODPUT_PLUGINS="auto")
    assert hooked.stdout == plain.stdout
    said = Counter(re.findall(rf"the plugin '(\w+)' {OFF}", hooked.stderr))
    assert set(said.values()) <= {1} and hooked.stderr.count("goodput: ") == len(said)
    assert not run.runs.exists()


# --- everything at once ----------------------------------------------------------------------------

EVERYTHING = f"""
import importlib
import sys
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
from training import LOOPS
for name in sys.argv[1].split(","):
    print(name, LOOPS[name](Path.cwd() / sys.argv[2] / name))
for name in sys.argv[3].split(","):
    print("module", name, importlib.import_module(name).__spec__.origin)
"""
SABOTAGE = """
from goodput_plugins.core import guard, patching
class Planted(Exception): pass
def fails(*args, **kwargs): raise Planted
around = patching.around
def around_what_fails(*args, before=None, after=None, **kwargs):  # it calls these itself, as a guard would
    return around(*args, before=before and fails, after=after and fails, **kwargs)
patching.around = around_what_fails
whole = guard.Guard.__call__
def sabotaged(self, ours, /, *args, **kwargs):
    return whole(self, fails, *args, **kwargs)
"""
WHILE_RUNNING = (
    SABOTAGE
    + """
def installed(self, ours, /, *args, **kwargs):  # installing succeeds, everything after it fails
    installs = getattr(ours, "__qualname__", "").endswith("_install.<locals>.<lambda>")
    return whole(self, ours if installs else fails, *args, **kwargs)
guard.Guard.__call__ = installed
"""
)
ENTRY_POINT = "callbacks from entry point"
"""Lightning tells of each callback that comes to it this way, ours too."""
FROM_THE_START = SABOTAGE + "guard.Guard.__call__ = sabotaged\n"


@pytest.mark.timeout(600)
def test_results_are_equal_to_the_bit_without_the_switch_with_it_and_with_every_plugin_sabotaged(run: Runner) -> None:
    names = [plugin.name for plugin in PLUGINS]
    modules = sorted({name for plugin in PLUGINS for name in (plugin.library, *triggers(plugin))})
    seen = {}
    for case, preamble, switch in (
        ("off", "", "off"),
        ("on", "", "auto"),
        ("sabotaged while it runs", WHILE_RUNNING, "auto"),
        ("sabotaged from the start", FROM_THE_START, "auto"),
    ):
        command = [*run.command(preamble + EVERYTHING), ",".join(names), case, ",".join(modules)]
        variables = run.environ(GOODPUT_PLUGINS=switch, JAX_PLATFORMS="cpu")
        done = subprocess.run(command, env=variables, cwd=run.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen[case] = done
    told = [line.split() for line in seen["off"].stdout.splitlines() if not line.startswith("[Gloo]")]
    assert [words[0] for words in told] == [*names, *["module"] * len(modules)]
    ours = Path(goodput_plugins.__file__).parent
    assert not [origin for *_, origin in told[len(names) :] if Path(origin).is_relative_to(ours)]
    assert {done.stdout for done in seen.values()} == {seen["off"].stdout}
    words = {
        case: [line.replace(f"/{case}/", "/") for line in seen[case].stderr.splitlines() if ENTRY_POINT not in line]
        for case in ("off", "on")
    }
    assert words["on"] == words["off"]
    for name in names:
        for case in ("sabotaged while it runs", "sabotaged from the start"):
            said = seen[case].stderr.count(f"the plugin '{name}' {OFF}")
            assert said == 1, (case, name)
    _, events = run.recorded()
    assert {event.name for event in events if event.kind is Kind.PLUGIN} >= set(names)
