"""The switch: ``GOODPUT_PLUGINS=auto python train.py``.

A line beside the package in ``site-packages`` (``goodput_plugins.pth``) tests the variable at every
interpreter start and calls :func:`boot` where it is set. That puts a finder first on the import
path and does nothing else; a plugin is loaded when the framework it hooks is imported, so a process
that imports none pays about a millisecond and leaves no trace.
"""

from __future__ import annotations


def boot() -> None:
    """Arm what ``GOODPUT_PLUGINS`` asks for, once. Never raises: it runs in every interpreter."""
    try:
        from goodput_plugins.auto.arming import arm
        from goodput_plugins.auto.plugins import TABLE

        arm(TABLE)
    except Exception as error:
        from goodput_plugins.core.guard import say

        say("the switch GOODPUT_PLUGINS failed; nothing is measured. Please report this traceback:", error=error)
