"""What the thread does that watches the device: it sees, one after the other, when what is queued is done.

It polls and never blocks in native code: a thread that waits there when the interpreter ends aborts the process. Some
steps are short and queued behind each other: as the device cannot have been idle between them, they end evenly.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from goodput_plugins.core.events import Activity, Fact
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.jax.figures import StepFunctions
from goodput_plugins.jax.followed import Followed
from goodput_plugins.jax.in_flight import EVALUATION, Evaluation, InFlight, Part, answers
from goodput_plugins.jax.pace import COMING_BY, SELDOM, Pace
from goodput_plugins.jax.pauses import Pauses

Work = InFlight | Evaluation | Followed

EVALUATION_POLL_SECONDS = 0.002
WORTH_TELLING = 1_000_000
"""Other work between two steps is told if the device spent more on it, ns."""
TELLING_EVERY = 1_000_000_000


class Watching:
    """Sees work done on the device and tells ``recorder.device_done``.

    Args:
        recorder: to be told.
        functions: whose calls the work is.
        queue: the work, in the order in which the device does it; the host's thread appends.

    Attributes:
        awaited: what it waits for; None if nothing is to do.
        pace: when it looks.
        stopping: the queue is to be left as it is; the host's thread sets it.
    """

    def __init__(self, recorder: NullRecorder, functions: StepFunctions, queue: deque[Work]) -> None:
        self.awaited: Work | None = None
        self.pace = Pace()
        self.stopping = False
        self._recorder = recorder
        self._functions = functions
        self._queue = queue
        self._held: Work | None = None  # it was taken too early
        self._free = 0  # when the device had nothing to do
        self._others: dict[str, int] = {}
        self._to_tell: dict[str, tuple[int, int]] = {}
        self._told_at = 0
        self._pauses = Pauses(recorder)

    def run(self) -> None:
        """See all that is queued, until :attr:`stopping`."""
        while (item := self._take()) is not None and not self.stopping:
            if isinstance(item, Evaluation):
                self._evaluated(item)
            elif isinstance(item, Followed):
                self._followed(item)
                self._pauses.begins(None)
            elif isinstance(item, Part):
                self._part(item)
            else:
                self._queued(item)
        while item is not None:
            if isinstance(item, Evaluation):
                self._evaluated(item)
            elif isinstance(item, Part):
                self._part(item)
            item = self._take()
        self._tell_other_work()

    def _queued(self, work: InFlight) -> None:
        """See when a step, or work between steps, is done."""
        free = self._free
        if work.ordinal is None:
            self._worked(work)
        elif work.done is not None:
            self._told(work)
        else:
            self._stepped(work)
        self._pauses.begins(self._free if self._free != free else None)

    def _take(self) -> Work | None:
        """What is next in the queue, once there is something; None at the end."""
        held, self._held = self._held, None
        if held is not None:
            return held
        pause, longest = self.pace.idle_pauses()
        while not self._queue:
            if self.stopping:
                return None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return self._queue.popleft()

    def _told(self, step: InFlight) -> None:
        """The host saw this step done, and maybe those that follow: all of them in one go."""
        pace, free, functions = self.pace, self._free, self._functions
        while step.done is not None and step.ordinal is not None:
            pace.called(step.ordinal, step.dispatched)
            self._recorder.device_done(step.ordinal, step.done)
            duration = step.done - max(free, step.dispatched)
            pace.took(duration)
            if functions.several:
                functions.took(step.name, duration)
            free = step.done
            following = self._queue[0] if self._queue else None
            if type(following) is not InFlight or following.done is None or following.ordinal is None:
                break
            self._queue.popleft()
            step = following
        self._free = free
        functions.tell()
        self._tell_other_work()

    def _stepped(self, step: InFlight) -> None:
        """See when a step is done; several short ones that wait behind each other share the time until the last is."""
        since, group = max(self._free, step.dispatched), [step]
        assert step.ordinal is not None
        self.pace.called(step.ordinal, step.dispatched)
        while step.done is None and self.pace.waits_together(len(group)) and self._queue:
            following = self._queue.popleft()
            if type(following) is not InFlight or following.ordinal is None:
                self._held = following
                break
            step = following
            group.append(step)
        self._see_done(group, since, step.ordinal or 0)
        self._tell_other_work()

    def _followed(self, steps: Followed) -> None:
        """Tell when steps were done that the host waits for, until something else is queued."""
        pace, clock = self.pace, self._recorder.now
        self.awaited = steps
        while not (steps.over or self._queue or self.stopping):
            time.sleep(SELDOM / 1e9)
            if pace.is_probe(steps.ordinal):
                steps.probe(clock, pace, lambda: not self.stopping)
            steps.come_by(clock, pace.usual)
            self._free = steps.tell(self._recorder, pace) or self._free
        steps.over = True
        steps.look(clock)
        self._free = steps.tell(self._recorder, pace) or self._free
        self.awaited = steps.newest = None

    def _part(self, part: Part) -> None:
        """See when a piece of a step is done; several short ones that were queued before that share the time."""
        since, group = max(self._free, part.dispatched), [part]
        self.pace.called(part.counts, part.dispatched)
        self._pauses.ends(part)
        while (
            part.done is None and self.pace.waits_together(len(group)) and self._queue and answers(part.leaf) is False
        ):
            following = self._queue.popleft()
            if not isinstance(following, Part):
                self._held = following
                break
            part = following
            group.append(part)
        self._pauses.begins(self._see_done(group, since, part.counts))
        self._tell_other_work()

    def _see_done(self, group: Sequence[InFlight], since: int, place: int) -> int | None:
        """Tell when work was done that the device began then.

        Args:
            group: the work, in its order.
            since: when it began, ns.
            place: of the last piece, among all that are like it.

        Returns:
            When the last piece was done; None if that cannot be known.
        """
        pace, last = self.pace, group[-1]
        finely = not pace.host_tells or pace.is_probe(place)
        if last.done is None and not finely:
            self._come_by(last)
        done = self._wait(last, since, since + pace.shortest * len(group) * 7 // 8, len(group))
        if done is None:
            return None
        duration = max(0, done - since) // len(group)
        for number, one in enumerate(group, 1):
            one.leaf = None
            if one.ordinal is not None:
                shared = max(one.dispatched, since + (done - since) * number // len(group))
                self._recorder.device_done(one.ordinal, min(done, shared))
                if self._functions.several:
                    self._functions.took(one.name, duration)
        pace.took(duration)
        if finely:
            pace.looked_at(place, last.dispatched, done)
        self._free = max(self._free, done)
        self._functions.tell()
        return done

    def _worked(self, work: InFlight) -> None:
        """See for how long the device works on what is no step."""
        since = max(self._free, work.dispatched)
        done = self._wait(work, since, since, 1)
        if done is not None:
            self._others[work.name] = self._others.get(work.name, 0) + done - since
            self._free = done

    def _tell_other_work(self) -> None:
        """Tell how long the device worked on something else since the step before; at most once a second."""
        for name, duration in self._others.items():
            if duration > WORTH_TELLING:
                before, times = self._to_tell.get(name, (0, 0))
                self._to_tell[name] = before + duration, times + 1
        self._others.clear()
        now = self._recorder.now() if self._to_tell else 0
        if self._to_tell and (self.stopping or now - self._told_at > TELLING_EVERY):
            for name, (duration, times) in self._to_tell.items():
                self._recorder.fact(Fact.OTHER_WORK, of=name, duration=duration, count=times)
            self._to_tell.clear()
            self._told_at = now

    def _evaluated(self, evaluation: Evaluation) -> None:
        """See an evaluation end, and tell when its last result was ready."""
        while not (evaluation.over and evaluation.end is not None) and not self.stopping:
            time.sleep(EVALUATION_POLL_SECONDS)
            evaluation.look(self._recorder.now())
        end = evaluation.end
        if end is None:
            end = self._recorder.now()
        self._pauses.evaluated(end)
        self._free = max(self._free, end)
        self._recorder.finish_apart(Activity.CUSTOM, evaluation.thread, end, name=EVALUATION)

    def _wait(self, work: InFlight, since: int, earliest: int, count: int) -> int | None:
        """When it was seen to be done; None if that cannot be known."""
        clock, leaf = self._recorder.now, work.leaf
        self.awaited = work
        while work.done is None and not (answer := answers(leaf)):
            if answer is None or self.stopping:
                break
            time.sleep(self.pace.pause(clock(), since, earliest, count))
        else:
            work.done = work.done or clock()
        self.awaited = work.leaf = None
        return work.done

    def _come_by(self, step: InFlight) -> None:
        """Wait until a step was seen to be done, or the next was called without that."""
        self.awaited = step
        while step.done is None and not self._queue and not self.stopping and not answers(step.leaf):
            time.sleep(COMING_BY / 1e9)
