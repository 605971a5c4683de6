"""Goodput of training jobs: where the accelerator time goes, to the second.

Set ``GOODPUT_PLUGINS=auto`` and start training; then ``goodput report`` tells. Or by hand::

    from goodput_plugins.orbax import wrap

    manager = wrap(ocp.CheckpointManager(...))

Importing this package imports no framework.
"""

from __future__ import annotations


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("goodput-plugins")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
