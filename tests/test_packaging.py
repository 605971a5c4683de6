"""The distribution: what it puts into site-packages, that this arms the switch, and that nothing stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

CLONE = Path(__file__).parent.parent
FINDER = "import sys; print('Finder' in [type(finder).__name__ for finder in sys.meta_path])"


def clean(**more: str) -> dict[str, str]:
    dropped = ("GOODPUT_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | more


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=CLONE, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_our_package_the_switch_and_its_metadata_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    version = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]["version"]
    assert {name.partition("/")[0] for name in names} == {
        "goodput_plugins",
        f"goodput_plugins-{version}.dist-info",
        "goodput_plugins.pth",
    }
    assert "goodput_plugins/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_wheel_requires_no_framework(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read(wheel.name.replace("-py3-none-any.whl", ".dist-info/METADATA")).decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    names = {line.removeprefix("Requires-Dist: ").partition(">")[0] for line in required}
    assert names == {"msgspec", "rich"}


def test_installed_it_arms_the_switch_and_removed_it_is_gone(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python = str(tmp_path / "env" / "bin" / "python")
    packages = next((tmp_path / "env").glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", python]

    def ask(source: str, **variables: str) -> str:
        command = [python, "-c", source]
        done = subprocess.run(command, env=clean(**variables), check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (packages / "other.pth").touch()
    before = set(packages.iterdir())
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], env=clean(), check=True)
    assert ask("import goodput_plugins; print(goodput_plugins.__version__)") in wheel.name
    assert (tmp_path / "env" / "bin" / "goodput").exists()
    armed = {switch: ask(FINDER, GOODPUT_PLUGINS=switch) for switch in ("", "off", "auto", "orbax")}
    assert armed == {"": "False", "off": "False", "auto": "True", "orbax": "True"}
    assert ask(FINDER) == "False"

    subprocess.run([*pip, "uninstall", "-qy", "goodput-plugins"], env=clean(), check=True)
    assert set(packages.iterdir()) == before
    assert ask(FINDER, GOODPUT_PLUGINS="auto") == "False"


def test_this_environment_has_us_installed_with_the_switch() -> None:
    """Else the tests of the switch would test nothing: run them with the interpreter of tools/envs.py."""
    command = [sys.executable, "-c", FINDER]
    done = subprocess.run(command, env=clean(GOODPUT_PLUGINS="auto"), check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
