"""Make, or find, the environments that the tests and the demo run in.

An environment has two layers, both outside the clone:

* the *base*: the packages of ``requirements/NAME.txt`` (frameworks, test tools), gigabytes, keyed
  by a hash of that text and the Python version, shared by every clone;
* the *overlay*: this clone, installed editable, a few kilobytes, keyed by base and clone path.

``python tools/envs.py main`` prints the path of an interpreter that has both. A changed
requirement makes a new base; nothing is ever copied per clone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goodput-plugins"
PYTHON_OF = {"main": "3.11", "torch-xla": "3.11", "newest-jax": "3.12"}


def main(name: str) -> int:
    if name not in PYTHON_OF:
        print(f"envs.py: no environment {name!r}; there are: {', '.join(PYTHON_OF)}", file=sys.stderr)
        return 2
    interpreter = find_python(PYTHON_OF[name])
    if interpreter is None:
        print(f"envs.py: Python {PYTHON_OF[name]} is not on this machine; '{name}' needs it", file=sys.stderr)
        return 3
    try:
        print(overlay(name, base(name, interpreter)))
    except subprocess.CalledProcessError as error:
        print(f"envs.py: could not make '{name}': {' '.join(error.cmd)} failed, see above", file=sys.stderr)
        return 1
    return 0


def find_python(version: str) -> str | None:
    """The path of a working interpreter of that version: on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = [sys.executable, f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in filter(None, map(shutil.which, named)):
        answer = run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"])
        if answer.startswith(version + " "):
            return answer.split(" ", 1)[1].strip()
    return None


def base(name: str, interpreter: str) -> Path:
    """The environment that holds the packages of ``requirements/NAME.txt``."""
    text = requirements(CLONE / "requirements" / f"{name}.txt")
    key = digest(interpreter, text)
    home = CACHE / f"{name}-{key}"
    with ready(home) as wanted:
        if wanted:
            print(f"envs.py: making the environment '{name}' (a minute or two) ...", file=sys.stderr)
            subprocess.check_call([interpreter, "-m", "venv", str(home)])
            listed = home / "requirements.txt"
            listed.write_text(text)
            subprocess.check_call(
                [str(home / "bin/python"), "-m", "pip", "install", "-qq", "-r", str(listed)], stdout=sys.stderr
            )
    return home


def overlay(name: str, home: Path) -> Path:
    """An interpreter that has the base and, editable, this clone."""
    built_from = (CLONE / "pyproject.toml").read_text() + "".join(pth.read_text() for pth in CLONE.glob("*.pth"))
    place = CACHE / "clones" / f"{name}-{digest(str(home), str(CLONE), built_from)}"
    python = place / "bin/python"
    with ready(place) as wanted:
        if wanted:
            subprocess.check_call([str(home / "bin/python"), "-m", "venv", "--without-pip", str(place)])
            packages = next(place.glob("lib/python*/site-packages"))
            below = next(home.glob("lib/python*/site-packages"))
            (packages / "0_base.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
            install = ["install", "-qq", "--no-deps", "--no-build-isolation", "-e", str(CLONE)]
            subprocess.check_call(
                [str(home / "bin/python"), "-m", "pip", "--python", str(python), *install], stdout=sys.stderr
            )
    return python


@contextmanager
def ready(place: Path) -> Iterator[bool]:
    """Yield whether ``place`` has to be made; one maker at a time, and a half-made one starts over."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / ".ready"
        wanted = not done.exists()
        if wanted:
            shutil.rmtree(place, ignore_errors=True)
        yield wanted
        done.touch()


def requirements(path: Path) -> str:
    """The text of a requirements file with the files that it includes."""
    lines = []
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            lines.append(requirements(path.parent / line[3:].strip()))
        elif line and not line.startswith("#"):
            lines.append(line + "\n")
    return "".join(lines)


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def run(command: list[str]) -> str:
    """The standard output of a command; empty if it failed."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
