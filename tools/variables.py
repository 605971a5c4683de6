"""Write docs/variables.md from ``goodput_plugins/environ.py``: ``python tools/variables.py``."""

from __future__ import annotations

import ast
from pathlib import Path

from goodput_plugins import environ

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "variables.md"

_HEAD = """# Variables

Every environment variable that is read. An unknown `GOODPUT_*` name or value is one warning that lists the known ones;
training goes on with the default. `goodput doctor` says the same before a training starts.

Written from `goodput_plugins/environ.py` by `python tools/variables.py`.
"""


def page() -> str:
    """The page's text."""
    ours = [variable for name, variable in environ.KNOWN.items() if name.startswith(environ.PREFIX)]
    standard = [variable for name, variable in environ.KNOWN.items() if not name.startswith(environ.PREFIX)]
    return "\n".join([_HEAD, *_table(ours), "", "Of others, these:", "", *_table(standard), ""])


def _table(variables: list[environ.Variable]) -> list[str]:
    used = _read_somewhere()
    rows = ["| variable | what it does | takes | default |", "|---|---|---|---|"]
    for one in variables:
        text = one.text.replace("<", "&lt;") + ("" if one.name in used else " *Nothing reads it yet.*")
        rows.append(f"| `{one.name}` | {text} | {one.known} | {f'`{one.default}`' if one.default else ''} |")
    return rows


def _read_somewhere() -> set[str]:
    """The variables that the package uses by the names of their constants."""
    constants: set[str] = set()
    package = ROOT / "goodput_plugins"
    looking = package / "doctor" / "destinations.py"  # which only looks at what others read
    for path in set(package.rglob("*.py")) - {looking}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("env", "environ"):
                constants.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and node.module == "goodput_plugins.environ":
                constants.update(name.name for name in node.names)
    named = [getattr(environ, constant, None) for constant in constants]
    return {variable.name for variable in named if isinstance(variable, environ.Variable)}


if __name__ == "__main__":
    PAGE.write_text(page())
