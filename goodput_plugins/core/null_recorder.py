"""The recorder that does nothing, and with it every method that a recorder has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from goodput_plugins.core.events import Activity, Fact

if TYPE_CHECKING:
    from goodput_plugins.core.condensed import Condensed
    from goodput_plugins.core.runs import Run


class NullRecorder:
    """A recorder that does nothing; every method of :class:`Recorder` is here."""

    steps = 0
    """How many steps were recorded."""
    by_hand = False
    """The script tells its steps itself, so what hooks take for steps are none."""
    run: Run | Condensed | None = None
    """Where the next step goes, if it follows the last."""
    at_begin: Callable[[], None] | None = None
    """Called before an activity begins: who watches a device looks once more before the host goes its way."""
    at_restored: Callable[[], None] | None = None
    """Called when a checkpoint has been restored: steps may go on from elsewhere."""

    def now(self) -> int:
        return 0

    def begin(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        pass

    def finish(self, activity: Activity, *, name: str | None = None, step: int | None = None, data: Any = None) -> None:
        pass

    @contextmanager
    def activity(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> Iterator[None]:
        self.begin(activity, name=name, step=step)
        try:
            yield
        finally:
            self.finish(activity, name=name, step=step)

    def wait(self, *, name: str | None = None) -> bool:
        return False

    def inside(self, activity: Activity) -> bool:
        return False

    def begin_apart(self, activity: Activity, *, name: str | None = None) -> int:
        return 0

    def finish_apart(self, activity: Activity, thread: int, at: int, *, name: str | None = None) -> None:
        pass

    def span(
        self,
        activity: Activity,
        start: int,
        duration: int,
        *,
        name: str | None = None,
        step: int | None = None,
        data: Any = None,
    ) -> None:
        pass

    def step(self, number: int | None = None, *, at: int | None = None) -> int:
        return 0

    def step_by_hand(self, number: int | None = None, *, at: int | None = None) -> int:
        return 0

    def number(self, step: int, *, name: str | None = None) -> None:
        pass

    def device_done(self, ordinal: int, *times: int) -> None:
        pass

    def device_idle(self, start: int, duration: int) -> None:
        pass

    def heartbeat(self) -> None:
        pass

    def committed(self, step: int | None, *, duration: int | None = None, data: Any = None) -> None:
        pass

    def commit_failed(self, step: int | None, error: str) -> None:
        pass

    def notice(self, name: str) -> None:
        pass

    def fact(self, what: Fact, *, of: str | None, duration: int | None = None, count: int | None = None) -> None:
        pass

    def plugin(self, name: str, version: str, sees: tuple[str, ...], *, device: str | None = None) -> None:
        pass

    def rank(self, index: int, count: int | None = None) -> None:
        pass

    def training_begins(self) -> None:
        pass
