"""Watching imports: told of each module that ran, and no import behaves otherwise than without us."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from running import Runner

WATCH = """
import importlib, importlib.util, importlib.machinery, sys
from goodput_plugins.auto.imports import Finder, is_installed
told = []
class Watcher:
    def importing(self, name): told.append(("importing", name))
    def imported(self, name, module, began, outermost): told.append((name, getattr(module, "done", None), outermost))
def watch(*names):
    Finder(names, Watcher()).install()
"""


@pytest.fixture
def modules(run: Runner) -> Path:
    """A few modules beside the script that imports them."""
    (run.folder / "plain.py").write_text("done = True\n")
    (run.folder / "outer.py").write_text("import inner\ndone = inner.done\n")
    (run.folder / "inner.py").write_text("done = True\n")
    (run.folder / "shared" / "part").mkdir(parents=True)
    (run.folder / "shared" / "part" / "__init__.py").write_text("done = True\n")
    (run.folder / "shaky.py").write_text("import helper\n\ndef load():\n    helper.load()\n\nload()\n")
    (run.folder / "broken.py").write_text("x = = 1\n")
    return run.folder


@pytest.mark.parametrize(
    ("names", "script", "told"),
    [
        (["plain"], "import plain", [("importing", "plain"), ("plain", True, True)]),
        (
            ["plain"],
            "import plain, plain; importlib.import_module('plain')",
            [("importing", "plain"), ("plain", True, True)],
        ),
        (["plain"], "import inner", []),
        (
            ["outer", "inner"],
            "def lazy():\n    import outer\nlazy()",
            [("importing", "outer"), ("importing", "inner"), ("inner", True, False), ("outer", True, True)],
        ),
        (["shared.part"], "import shared.part", [("importing", "shared.part"), ("shared.part", True, True)]),
        (["shared"], "import shared.part", []),
        (["nowhere"], "assert importlib.util.find_spec('nowhere') is None", []),
        (
            ["plain"],
            "import plain; importlib.reload(plain)",
            [("importing", "plain"), ("plain", True, True), ("importing", "plain"), ("plain", True, True)],
        ),
        (
            ["plain"],
            "import plain; del sys.modules['plain']; import plain",
            [("importing", "plain"), ("plain", True, True), ("importing", "plain"), ("plain", True, True)],
        ),
        (
            ["plain"],
            "spec = importlib.util.find_spec('plain')\n"
            "assert isinstance(spec.loader, importlib.machinery.SourceFileLoader)\n"
            "assert spec.loader.get_source('plain') == 'done = True\\n'\n"
            "assert told == []",
            [],
        ),
        (
            ["plain"],
            "spec = importlib.util.find_spec('plain')\n"
            "spec.loader = importlib.util.LazyLoader(spec.loader)\n"
            "plain = sys.modules['plain'] = importlib.util.module_from_spec(spec)\n"
            "spec.loader.exec_module(plain)\n"
            "assert told == []\n"
            "assert plain.done",
            [("importing", "plain"), ("plain", True, True)],
        ),
    ],
)
def test_what_is_told(run: Runner, modules: Path, names: list[str], script: str, told: list[tuple[object]]) -> None:
    run(WATCH + f"watch(*{names!r})\n{script}\nassert told == {told!r}, told\n")


def test_a_module_that_is_there_already_is_told_at_once(run: Runner, modules: Path) -> None:
    run(WATCH + "import plain\nwatch('plain')\nassert told == [('plain', True, False)], told\n")


def test_an_imported_module_knows_its_own_loader_only(run: Runner, modules: Path) -> None:
    run(
        WATCH
        + "watch('plain')\nimport plain\n"
        + "assert type(plain.__loader__) is type(plain.__spec__.loader) is importlib.machinery.SourceFileLoader\n"
    )


def test_another_hook_of_our_kind_and_ours_both_work(run: Runner, modules: Path) -> None:
    later = "wrapt.register_post_import_hook(lambda module: told.append('wrapt'), 'plain')\n"
    for script in (f"{later}watch('plain')\n", f"watch('plain')\n{later}"):
        run(
            f"import wrapt\n{WATCH}{script}import plain\n"
            "assert set(told) == {'wrapt', ('importing', 'plain'), ('plain', True, True)} and len(told) == 3, told\n"
        )


def test_threads_import_at_once(run: Runner, modules: Path) -> None:
    for number in range(20):
        (modules / f"slow{number}.py").write_text("import time; time.sleep(0.01); done = True\n")
    run(
        WATCH
        + """
import threading
names = [f"slow{number}" for number in range(20)]
watch(*names)
threads = [threading.Thread(target=importlib.import_module, args=(name,)) for name in names * 3]
for thread in threads: thread.start()
for thread in threads: thread.join()
ran = sorted(entry for entry in told if entry[0] != "importing")
assert ran == [(name, True, True) for name in sorted(names)], ran
"""
    )


FAILURES = {
    "an exception": "raise ValueError('no')",
    "an ImportError": "raise ImportError('no')",
    "a missing module": "import nowhere",
    "a missing name": "from inner import absent",
    "an exit": "raise SystemExit('no')",
    "an interrupt": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
@pytest.mark.parametrize("caught", [False, True])
def test_a_failing_import_fails_as_it_does_without_us(run: Runner, modules: Path, failure: str, caught: bool) -> None:
    (modules / "helper.py").write_text(f"def load():\n    {failure}\n")
    script = "import shaky\n"
    if caught:
        script = "import traceback\ntry:\n    import shaky\nexcept BaseException: print(traceback.format_exc())\n"
        script += "assert 'shaky' not in sys.modules\n"
    with_us = run(WATCH + "watch('shaky', 'helper', 'inner')\n" + script, code=None)
    without = run(WATCH + "\n" + script, code=None)
    assert (with_us.returncode, with_us.stdout, with_us.stderr) == (without.returncode, without.stdout, without.stderr)
    assert "goodput" not in with_us.stdout + with_us.stderr
    assert with_us.stdout or with_us.stderr


def test_a_syntax_error_and_a_missing_module_look_as_they_do_without_us(run: Runner, modules: Path) -> None:
    for name in ("broken", "nowhere", "plain.part"):
        with_us = run(WATCH + f"watch({name!r}, 'plain')\nimport {name}\n", code=1)
        without = run(WATCH + f"\nimport {name}\n", code=1)
        assert with_us.stderr == without.stderr
        assert re.search("SyntaxError|ModuleNotFoundError", with_us.stderr)


def test_a_module_can_be_imported_after_it_failed(run: Runner, modules: Path) -> None:
    (modules / "fickle.py").write_text("import sys\nif not hasattr(sys, 'ready'): raise ImportError\ndone = True\n")
    run(
        WATCH
        + "watch('fickle')\n"
        + "try: import fickle\nexcept ImportError: sys.ready = True\n"
        + "import fickle\nassert told[-1] == ('fickle', True, True)\n"
    )


def test_whether_a_library_is_installed_is_seen_without_importing_it(run: Runner, modules: Path) -> None:
    run(
        WATCH
        + "watch('plain', 'shared.part')\n"
        + "assert [is_installed(name) for name in ('plain', 'shared.part', 'shared.absent', 'nowhere.part')] "
        + "== [True, True, False, False]\n"
        + "assert told == [] and not {'plain', 'shared', 'shared.part'} & set(sys.modules)\n"
    )
