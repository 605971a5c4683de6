"""A run's report, asked for again and again while the run grows: a poll costs what is new, not the history.

::

    live = Live(Journals(folder), state=folder / ".live.json")
    while True:
        report = live.report()          # what calculate() would say of the whole log
        live.save()                     # the next process goes on from here

Time that is attributed for good is put aside (:mod:`~goodput_plugins.core.live.freeze`); a poll looks at the
last steps only. Where something new changes what was put aside (an entry that comes late, a restart from
an odd step), all is read and attributed again, once. So it is never wrong, and sometimes slow.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from goodput_plugins.core.attribution import Generation, attribute
from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.attribution.past import Past, Unsettled
from goodput_plugins.core.calculator import choose, nothing_begun, report_of
from goodput_plugins.core.live import state as saved
from goodput_plugins.core.live.blocks import starts_of
from goodput_plugins.core.live.cuts import MOST_ATTEMPTS, Place, cuts_at, places, quiet_step
from goodput_plugins.core.live.freeze import Kept, put_aside
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

KEEP = 128
"""So many of the last steps are attributed at each poll, twice as many at most."""
MOST_OF_SPAN = 20_000
"""So many steps of a span are kept, and attributed at each poll."""
LATEST_KEEP = 100_000


class Source(Protocol):
    """Where the log of a run comes from."""

    def poll(self, past: Past | None) -> None:
        """Take in what is new.

        Raises:
            Unsettled: something is, that belongs to the past.
            UnusableData: there is nothing that can be used.
        """

    def log(self) -> RunLog:
        """What was told; after :meth:`keep` the rest."""

    def settled(self, life: str) -> RunLog | None:
        """The same without what may still grow of that life and later ones; None where nothing may be put aside."""

    def shorten(self, life: Life, at: int) -> None:
        """Go through what came before a step for the last time, if it can; the log has this attempt only."""

    def keep(self, rest: RunLog, past: Past) -> None:
        """Forget what is not in the rest."""

    def restart(self) -> None:
        """Forget everything; the next poll takes all in again."""

    def state(self) -> Any:
        """What a later process needs to go on, as JSON."""

    def restore(self, state: Any) -> None:
        """Go on from there; raises whatever it likes if that is damaged."""


class Live:
    """The report of a run that grows.

    Args:
        source: where its log comes from.
        state: a file from which to go on, and to which :meth:`save` writes; None: neither.
        keep: how many of the last steps are looked at again at each poll.

    Attributes:
        span: what is younger than this is not put aside, ns, so that windows can be asked for; if it is not too much.
        notes: what was wrong with the state that was found.
        rebuilds: how often all was attributed again.
    """

    def __init__(self, source: Source, *, state: Path | None = None, keep: int = KEEP) -> None:
        self.span = 0
        self.notes: list[str] = []
        self.rebuilds = 0
        self._source = source
        self._path = state
        self._keep = keep
        self._kept: Kept | None = None
        self._tried = 0
        if state is not None:
            self._load(state)

    def report(self, now: int | None = None) -> Report:
        """Take in what is new, and say what the whole log says.

        Args:
            now: the wall clock, ns since the epoch.

        Raises:
            UnusableData: there is no run, or no attempt has begun.
        """
        now = time.time_ns() if now is None else now
        try:
            return self._report(now)
        except Unsettled:
            return self._rebuild(now)

    def rolling(self, lengths: Iterable[int], now: int) -> dict[int, Report]:
        """What a report of the whole log says of rolling windows, as of the last :meth:`report`.

        Args:
            lengths: of the windows, which end now, ns.
            now: the wall clock, ns since the epoch.

        Returns:
            The report of each window of which nothing was put aside, by its length.
        """
        before, past, earlier = self._kept if self._kept is not None else (0, None, None)
        windows = {length: (now - length, now) for length in lengths if past is None or past.moment < now - length}
        if not windows:
            return {}
        log = self._source.log()
        generations = attribute(log, now=now, until=now, past=past).generations
        chosen = choose(log, generations, None, now)
        if chosen:
            earlier = None
        told = partial(report_of, log, generations[chosen], chosen + before, earlier=earlier)
        return {length: told(window=window) for length, window in windows.items()}

    def save(self) -> None:
        """Write the state; raises OSError where that cannot be done."""
        if self._path is not None:
            saved.write(self._path, self._keep, self._kept, self._source.state())

    def _rebuild(self, now: int) -> Report:
        """Read and attribute everything again, and look at more of it from here on."""
        self.rebuilds += 1
        self._keep = min(2 * self._keep, LATEST_KEEP)
        self._forget()
        return self._report(now)

    def _forget(self) -> None:
        self._kept, self._tried = None, 0
        self._source.restart()

    def _report(self, now: int) -> Report:
        past = self._kept.past if self._kept is not None else None
        self._source.poll(past)
        log = self._source.log()
        generations = attribute(log, now=now, past=past).generations
        if not generations:
            raise nothing_begun(log)
        newest, number = generations[-1], len(generations) - 1
        earlier = None
        if self._kept is not None:
            number += self._kept.number
            earlier = self._kept.earlier if len(generations) == 1 else None
        report = report_of(log, newest, number, earlier=earlier)
        self._put_aside(generations, now)
        return report

    def _put_aside(self, generations: list[Generation], now: int) -> None:
        """Put aside what is attributed for good, if it has become much and there is a place for a cut."""
        ledgers = [ledger for generation in generations for ledger in generation.ledgers]
        steps = sum(len(ledger.begins) - ledger.since for ledger in ledgers)
        keep = max(self._keep, min(_younger(ledgers, now - self.span), MOST_OF_SPAN))
        if steps <= self._tried + 2 * keep and len(ledgers) <= 2 * MOST_ATTEMPTS:
            return
        for place in places(generations, keep):
            with suppress(Unsettled):
                if self._cut(generations, place, now):
                    self._tried = 0
                    return
        self._tried = steps - 2 * keep + self._keep // 4
        if len(ledgers) == 1 and (at := quiet_step(ledgers[0], self._keep // 4)) is not None:
            self._source.shorten(ledgers[0].attempt.seen.life, at)

    def _cut(self, generations: list[Generation], place: Place, now: int) -> bool:
        """Put aside what lies before a place; False if that cannot be done."""
        life = generations[-1].ledgers[place.attempt].attempt.seen.life
        log = self._source.settled(life.id)
        if log is None:
            return False
        later = [one for one in log.lives if (one.start, one.id) > (life.start, life.id)]
        log.lives = [one for one in log.lives if (one.start, one.id) <= (life.start, life.id)]
        past = self._kept.past if self._kept is not None else None
        alone = attribute(log, now=now, past=past).generations
        if len(alone) != len(generations) or len(alone[-1].ledgers) != place.attempt + 1:
            return False
        starts = starts_of(generations[-1])
        for cut in cuts_at(alone[-1], place, past if len(alone) == 1 else None):
            kept = put_aside(log, alone, self._kept, cut, now, starts)
            if kept is not None:
                log.lives += later
                self._kept = kept
                self._source.keep(log, kept.past)
                return True
        return False

    def _load(self, path: Path) -> None:
        """Go on from a saved state; one that cannot be used is left aside."""
        try:
            keep, kept, of_source = saved.read(path)
            if kept is not None:
                self._source.restore(of_source)
        except FileNotFoundError:
            return
        except Exception as fault:  # whatever a damaged file brings about
            self.notes.append(f"{path}: this state cannot be used ({type(fault).__name__}: {fault}); all is read anew.")
            self._source.restart()
            return
        self._keep, self._kept = keep, kept


def _younger(ledgers: Sequence[Ledger], moment: int) -> int:
    """How many steps end after a moment."""
    return sum(len(ledger.begins) - max(ledger.since, bisect_left(ledger.begins, moment) - 1) for ledger in ledgers)
