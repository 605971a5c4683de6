"""Which plugins would be armed, why others would not, and whether the frameworks are the real ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import goodput_plugins
from goodput_plugins import environ as env
from goodput_plugins.auto.plugins import TABLE, Plugin
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, unknown, warning, wrong

OURS = Path(goodput_plugins.__file__ or "").parent


def plugins(case: Case) -> Iterator[Diagnosis]:
    """Each plugin: whether its library is here, in a version that it knows."""
    asked = env.plugins_asked_for(case.environ)
    for plugin in TABLE:
        yield _plugin(plugin, asked)


def _plugin(plugin: Plugin, asked: list[str]) -> Diagnosis:
    id, named = f"plugin-{plugin.name}", plugin.name in asked
    installed = _installed(plugin)
    pip = f"pip install '{plugin.requirement}'"
    if asked and asked != ["off"] and not named and "auto" not in asked:
        return ok(id, f"{plugin.name}: not asked for", f"GOODPUT_PLUGINS names {', '.join(asked)} only.")
    if installed is None:
        if named:
            text = f"{plugin.name}: {plugin.distribution} is not installed here"
            return wrong(id, text, "The plugin was asked for by name and cannot be armed.", pip)
        return ok(id, f"{plugin.name}: {plugin.distribution} is not installed", "There is nothing to watch.")
    distribution, version = installed
    if plugin.works_with(version):
        when = "is armed" if asked and asked != ["off"] else "would be armed"
        return ok(id, f"{plugin.name}: {when} when {distribution} {version} is imported")
    text = f"{plugin.name}: {distribution} {version} is none that the plugin knows"
    meaning = "The plugin stays off; what it would see is reported as not measured."
    return (wrong if named else warning)(id, text, meaning, pip)


def _installed(plugin: Plugin) -> tuple[str, str] | None:
    """The distribution that the plugin is for, and its version."""
    for distribution in (plugin.distribution, *dict(plugin.also).values()):
        try:
            return distribution, metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def resolved(case: Case) -> Iterator[Diagnosis]:
    """Whether ``import orbax`` gives the library, and not our folder of that name."""
    try:
        origins = case.probe["origins"]
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        yield unknown("frameworks", f"another Python could not be asked ({type(error).__name__})")
        return
    found = [name for name, places in origins.items() if places]
    shadowed = [name for name in found if any(OURS in Path(place).parents for place in origins[name] if place)]
    if shadowed:
        yield wrong(
            "frameworks",
            f"`import {', '.join(shadowed)}` finds our folder instead of the library",
            f"{OURS} is on sys.path, by PYTHONPATH or since Python starts in it; training cannot work so.",
            "Take it off PYTHONPATH, and start from another folder.",
        )
    if found and not shadowed:
        yield ok("frameworks", f"the real libraries are found: {', '.join(found)}")
    if not found:
        yield warning(
            "frameworks",
            "no framework that we watch is installed here",
            "There is nothing to measure in this environment.",
            "Run the doctor with the Python that trains.",
        )


CHECKS = (plugins, resolved)
