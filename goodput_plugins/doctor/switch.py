"""Is the switch on, and does Python see it?"""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Iterator

from goodput_plugins import environ as env
from goodput_plugins.auto.arming import mixture
from goodput_plugins.auto.plugins import TABLE
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, unknown, warning, wrong


def switch(case: Case) -> Iterator[Diagnosis]:
    """``GOODPUT_PLUGINS``."""
    asked = env.plugins_asked_for(case.environ)
    if set(asked) - {"off"}:
        yield ok("switch", f"GOODPUT_PLUGINS={','.join(asked)}", "A training that starts from here is measured.")
        return
    state = "is off" if asked else "is not set here"
    meaning, cure = "A training that starts from here is not measured.", "export GOODPUT_PLUGINS=auto"
    if case.report is not None:
        yield warning("switch", f"GOODPUT_PLUGINS {state}", f"{meaning} The run was recorded all the same.", cure)
    else:
        yield wrong("switch", f"GOODPUT_PLUGINS {state}", meaning, cure)


def start_up(case: Case) -> Iterator[Diagnosis]:
    """Whether a new interpreter arms the plugins."""
    try:
        armed = case.probe["armed"]
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        yield unknown("start-up", f"another Python could not be asked ({type(error).__name__})")
        return
    if armed:
        yield ok("start-up", "Python sees the switch when it starts")
    else:
        yield wrong(
            "start-up",
            f"{sys.executable} does not see the switch when it starts",
            "The line that looks for it, goodput_plugins.pth, is not in this interpreter's site-packages (or Python "
            "runs with -S or -I). No plugin is armed.",
            "Install goodput-plugins into the environment that trains: a PYTHONPATH entry or a copied folder is not "
            "enough.",
        )


def variables(case: Case) -> Iterator[Diagnosis]:
    """Names and values of our variables."""
    faults, strangers = env.values(case.environ), env.strangers(case.environ)
    known = {plugin.name for plugin in TABLE} | {"auto", "off"}
    asked = env.plugins_asked_for(case.environ)
    no_plugins = [name for name in asked if name not in known]
    if no_plugins:
        faults.append(f"GOODPUT_PLUGINS names {', '.join(no_plugins)}, which is no plugin")
    if clash := mixture(asked):
        said, _, cure = clash.partition(". ")
        yield warning("variables", said, "The rest of the variable holds.", cure)
    for fault in faults:
        yield wrong("variables", fault, "It is ignored, as if it were not set.", "Correct it, or unset it.")
    for name in strangers:
        near = difflib.get_close_matches(name, env.KNOWN, 1)
        cure = f"{f'Did you mean {near[0]}? ' if near else ''}docs/variables.md has all of them."
        yield wrong("variables", f"{name} is not known", "Nothing reads it.", cure)
    if not faults and not strangers and not clash:
        count = sum(name.startswith(env.PREFIX) for name in case.environ)
        told = "" if not count else ", known" if count == 1 else ", all known"
        yield ok("variables", f"{count or 'no'} GOODPUT_* variable{'' if count == 1 else 's'} set{told}")


CHECKS = (switch, start_up, variables)
