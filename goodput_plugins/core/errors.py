"""Errors that this package raises, a small tree.

::

    GoodputError               anything we raise on purpose; its text is one plain sentence
    ├── UnusableData           a journal, export or path that cannot be read  (exit code 1)
    └── PluginUnavailable      a plugin asked for by name cannot work here    (also an ImportError)

None of them ever reaches a training job on its own: they belong to the command line, to readers
and to calls that the user made by name.
"""

from __future__ import annotations


class GoodputError(Exception):
    """The base of every error that this package raises on purpose."""


class UnusableData(GoodputError):
    """The data cannot be used; the text says what was found and what would help."""


class PluginUnavailable(GoodputError, ImportError):
    """A plugin asked for by name cannot work here; the text carries the ``pip install`` line."""
