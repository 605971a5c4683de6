"""Pages that are written from the code, or name what is in it, are as it is."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from goodput_plugins import environ
from goodput_plugins.auto.plugins import TABLE

ROOT = Path(__file__).parent.parent
DOCTOR = ROOT / "goodput_plugins" / "doctor"


def test_the_page_of_variables_is_what_the_source_says() -> None:
    path = ROOT / "tools" / "variables.py"
    spec = importlib.util.spec_from_file_location("write_variables", path)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / "docs" / "variables.md").read_text() == tool.page(), "run: python tools/variables.py"


def lines_of_the_doctor() -> set[str]:
    """The slugs that are handed to ``ok``, ``warning``, ``wrong`` and ``unknown``, and those in tables of a check."""
    makers = ("ok", "warning", "wrong", "unknown", "level", "Diagnosis")
    nodes = [node for path in DOCTOR.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") in makers]
    found = {str(call.args[0].value) for call in calls if call.args and isinstance(call.args[0], ast.Constant)}
    return found | {"monitoring-enabled", "gcp-metrics", "plugin-..."}


def test_each_line_of_the_doctor_has_its_row() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    _, _, rest = page.partition("## Each line")
    table, _, _ = rest.partition("## What appears where")
    assert set(re.findall(r"^\| `([^`]+)` \|", table, flags=re.M)) == lines_of_the_doctor()


def test_the_manifest_of_gke_is_one_and_sets_variables_that_there_are() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed here")
    block, *_ = re.findall(r"```yaml\n(.+?)```", (ROOT / "docs" / "gke.md").read_text(), flags=re.S)
    (job,) = yaml.safe_load(block)["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["command"][:2] == ["goodput", "agent"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert {variable["name"] for variable in container["env"]} <= set(environ.KNOWN)
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_each_line_named_by_a_symptom_exists() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    _, _, rest = page.partition("## By symptom")
    table, _, _ = rest.partition("## Each line")
    known = lines_of_the_doctor() | {f"plugin-{plugin.name}" for plugin in TABLE}
    named = {slug for row in re.findall(r"\| ([^|]+) \|$", table, flags=re.M) for slug in re.findall(r"`([^`]+)`", row)}
    assert named and named <= known
