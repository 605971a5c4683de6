"""A run's log as attribution takes it: lives of its primary process, each with its events.

Readers (of journals, of entries exported from Cloud Logging) make a :class:`RunLog`; from there on
nothing knows where the events came from, except for ``foreign``, which the rules of attribution
name: such a log knows no process, no heartbeat and no device time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goodput_plugins.core.events import Event


@dataclass
class Life:
    """One life of the primary process.

    Attributes:
        id: what its journal is called; in a foreign log, its place.
        start: when the operating system created the process, ns since the epoch.
        events: in the order of :func:`goodput_plugins.core.events.in_order`.
        foreign: read from entries that name no process.
    """

    id: str
    start: int
    events: list[Event]
    foreign: bool = False


@dataclass
class RunLog:
    """Everything known of one run.

    Attributes:
        run: its name.
        lives: by start time.
        notes: what the reader had to leave out, one sentence each, as ``(slug, sentence)``.
    """

    run: str
    lives: list[Life] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
