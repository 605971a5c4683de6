"""When each step's work was done on the device.

A jitted call returns as soon as its work is queued, so the host's clock says little about the device. One
daemon thread asks a small output of each step whether it is ready, and tells the time when it is. It
polls and never blocks in native code: a thread that waits there when the interpreter ends aborts the
process. It holds one small array per step in flight, and none that is donated: the state of a step goes to
the next call, the loss does not. A step that cannot be asked is not sampled. Several short ones that are queued
behind each other, between which the device cannot have been idle, are told to end evenly. Evaluations, and
other work between steps, wait in the same queue, in the order in which the device does it.

The thread looks into its queue by itself (:mod:`~goodput_plugins.jax.pace`): to be woken for each step would cost the
host more than all the rest.
While the host runs Python it gets its turn up to 5 ms late. Where that would matter, because the
host goes to wait for data, save or compile, the host's own thread looks first (``recorder.at_begin``).
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from typing import Any

from goodput_plugins.core.events import Activity, Fact
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.jax.figures import MOST_IN_FLIGHT, StepFunctions
from goodput_plugins.jax.followed import Followed
from goodput_plugins.jax.functions import Frame, thread
from goodput_plugins.jax.in_flight import EVALUATION, Evaluation, InFlight, Part, answers, in_flight
from goodput_plugins.jax.pace import COMING_BY, SELDOM, Pace
from goodput_plugins.jax.pauses import Pauses

Work = InFlight | Evaluation | Followed

EVALUATION_POLL_SECONDS = 0.002
WORTH_TELLING = 1_000_000
"""Other work between two steps is told if the device spent more on it, ns."""
TELLING_EVERY = 1_000_000_000
JOIN_SECONDS = 1.0


class DeviceWatch:
    """Sees steps end on the device and tells ``recorder.device_done``.

    Attributes:
        functions: whose calls they are.
        in_flight: what the device works on, in order; once one step was watched, others may just be appended.
    """

    def __init__(self, recorder: NullRecorder, guard: Guard) -> None:
        self._recorder = recorder
        self._guard = guard
        self.functions = StepFunctions(recorder)
        self.in_flight: deque[Work] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._parts = 0
        self._follows = False
        # Of the thread alone: what it waits for, what it took too early, when the device was free, when to look at it,
        # how long it had other work.
        self._awaited: Work | None = None
        self._held: Work | None = None
        self._free = 0
        self._pace = Pace()
        self._others: dict[str, int] = {}
        self._to_tell: dict[str, tuple[int, int]] = {}
        self._told_at = 0
        self._pauses = Pauses(recorder)

    def watch(self, frame: Frame, ordinal: int, result: Any) -> InFlight | None:
        """A step's call has returned ``result``: see when it is ready. Returns it if that is still to come."""
        leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        ready = answers(leaf)
        if ready:
            self._follows = False
            now = self._recorder.now()
            self._recorder.device_done(ordinal, now)
            if self.functions.several:
                self.functions.took(frame.function.name, now - max(frame.start or now, thread.compiled))
                if self._thread is None:
                    self.functions.tell()
        elif ready is not None and len(self.in_flight) < MOST_IN_FLIGHT:
            step = in_flight(ordinal, self._recorder.now(), leaf, frame.function.name)
            self._put(step)
            return step
        else:
            self._follows = False
        return None

    def watch_part(self, frame: Frame, result: Any) -> None:
        """A piece of a step's work was queued: see when it is ready, and how long nothing was to do before."""
        if len(self.in_flight) >= MOST_IN_FLIGHT:
            self._follows = False
            return
        part, now = Part(), self._recorder.now()
        part.leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        part.ordinal, part.name = frame.ordinal, frame.function.name
        part.dispatched = max(frame.called or frame.start or now, thread.compiled)
        part.done = now if answers(part.leaf) else None
        part.counts, part.follows = self._parts, self._follows
        self._parts, self._follows = self._parts + 1, True
        self._put(part)

    def look_at_part(self) -> None:
        """The host calls something: the piece of a step that was queued last may be done by now."""
        try:
            is_part = isinstance(self.in_flight[-1], Part)
        except IndexError:
            is_part = isinstance(self._awaited, Part)
        if is_part:
            self._look()

    def watch_evaluation(self, evaluation: Evaluation) -> None:
        """An evaluation has begun: tell when it ended."""
        self._put(evaluation)

    def watch_other(self, frame: Frame, result: Any) -> None:
        """Work between steps was queued: see for how long the device works on it."""
        leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        if len(self.in_flight) < MOST_IN_FLIGHT and answers(leaf) is False:
            self._put(in_flight(None, self._recorder.now(), leaf, frame.function.name))

    @property
    def host_tells(self) -> bool:
        """Whether the host's next call tells well enough when a step was done, if the host waits for each."""
        return self._pace.host_tells

    def follow(self, ordinal: int, called: int) -> Followed:
        """From a step on that was called then, the host's calls tell when steps are done."""
        steps = Followed(ordinal, called)
        self._put(steps)
        return steps

    def close(self) -> None:
        """Stop the thread; what is still in flight is not sampled."""
        self._recorder.at_begin = None
        self._stopping = True
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _put(self, item: Work) -> None:
        if self._thread is None:
            self._recorder.at_begin = functools.partial(self._guard, self._look)
            self._thread = threading.Thread(target=self._guard, args=(self._run,), name="goodput-device", daemon=True)
            self._thread.start()
        self.in_flight.append(item)

    def _look(self) -> None:
        """Note that the newest work is done, if it is: the thread may learn it too late."""
        try:
            newest = self.in_flight[-1]
        except IndexError:
            if self._awaited is None:
                return
            newest = self._awaited
        if isinstance(newest, Evaluation):
            newest.look(self._recorder.now())
        elif isinstance(newest, Followed):
            newest.look(self._recorder.now)
        elif newest.done is None and answers(newest.leaf):
            newest.done = self._recorder.now()

    def _run(self) -> None:
        while (item := self._take()) is not None and not self._stopping:
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
        pause, longest = self._pace.idle_pauses()
        while not self.in_flight:
            if self._stopping:
                return None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        return self.in_flight.popleft()

    def _told(self, step: InFlight) -> None:
        """The host saw this step done, and maybe those that follow: all of them in one go."""
        pace, free, functions = self._pace, self._free, self.functions
        while step.done is not None and step.ordinal is not None:
            pace.called(step.ordinal, step.dispatched)
            self._recorder.device_done(step.ordinal, step.done)
            duration = step.done - max(free, step.dispatched)
            pace.took(duration)
            if functions.several:
                functions.took(step.name, duration)
            free = step.done
            following = self.in_flight[0] if self.in_flight else None
            if type(following) is not InFlight or following.done is None or following.ordinal is None:
                break
            self.in_flight.popleft()
            step = following
        self._free = free
        functions.tell()
        self._tell_other_work()

    def _stepped(self, step: InFlight) -> None:
        """See when a step is done; several short ones that wait behind each other share the time until the last is."""
        pace, since, group = self._pace, max(self._free, step.dispatched), [step]
        assert step.ordinal is not None
        pace.called(step.ordinal, step.dispatched)
        while step.done is None and pace.waits_together(len(group)) and self.in_flight:
            following = self.in_flight.popleft()
            if type(following) is not InFlight or following.ordinal is None:
                self._held = following
                break
            step = following
            group.append(step)
        finely = not pace.host_tells or pace.is_probe(step.ordinal or 0)
        if not finely:
            self._come_by(step)
        done = self._wait(step, since, since + pace.shortest * len(group) * 7 // 8, len(group))
        if done is not None:
            duration = (done - since) // len(group)
            for place, one in enumerate(group, 1):
                one.leaf = None
                if one.ordinal is not None:
                    shared = max(one.dispatched, since + (done - since) * place // len(group))
                    self._recorder.device_done(one.ordinal, min(done, shared))
            pace.took(duration)
            if finely and step.ordinal is not None:
                pace.looked_at(step.ordinal, step.dispatched, done)
            self._free = done
            if self.functions.several:
                for one in group:
                    self.functions.took(one.name, duration)
                self.functions.tell()
        self._tell_other_work()

    def _followed(self, steps: Followed) -> None:
        """Tell when steps were done that the host waits for, until something else is queued."""
        pace, clock = self._pace, self._recorder.now
        self._awaited = steps
        while not (steps.over or self.in_flight or self._stopping):
            time.sleep(SELDOM / 1e9)
            if pace.is_probe(steps.ordinal):
                steps.probe(clock, pace, lambda: not self._stopping)
            steps.come_by(clock, pace.usual)
            self._free = steps.tell(self._recorder, pace) or self._free
        steps.over = True
        steps.look(clock)
        self._free = steps.tell(self._recorder, pace) or self._free
        self._awaited = steps.newest = None

    def _part(self, part: Part) -> None:
        """See when a piece of a step is done; several short ones that were queued before that share the time."""
        pace, since, group = self._pace, max(self._free, part.dispatched), [part]
        pace.called(part.counts, part.dispatched)
        self._pauses.ends(part)
        while part.done is None and pace.waits_together(len(group)) and self.in_flight and answers(part.leaf) is False:
            following = self.in_flight.popleft()
            if not isinstance(following, Part):
                self._held = following
                break
            part = following
            group.append(part)
        finely = not pace.host_tells or pace.is_probe(part.counts)
        if part.done is None and not finely:
            self._come_by(part)
        done = self._wait(part, since, since + pace.shortest * len(group) * 7 // 8, len(group))
        self._pauses.begins(done)
        if done is not None:
            duration = max(0, done - since) // len(group)
            for place, one in enumerate(group, 1):
                one.leaf = None
                if one.ordinal is not None:
                    shared = max(one.dispatched, since + (done - since) * place // len(group))
                    self._recorder.device_done(one.ordinal, min(done, shared))
                    if self.functions.several:
                        self.functions.took(one.name, duration)
            pace.took(duration)
            if finely:
                pace.looked_at(part.counts, part.dispatched, done)
            self._free = max(self._free, done)
        self.functions.tell()
        self._tell_other_work()

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
        if self._to_tell and (self._stopping or now - self._told_at > TELLING_EVERY):
            for name, (duration, times) in self._to_tell.items():
                self._recorder.fact(Fact.OTHER_WORK, of=name, duration=duration, count=times)
            self._to_tell.clear()
            self._told_at = now

    def _evaluated(self, evaluation: Evaluation) -> None:
        """See an evaluation end, and tell when its last result was ready."""
        while not (evaluation.over and evaluation.end is not None) and not self._stopping:
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
        self._awaited = work
        while work.done is None and not (answer := answers(leaf)):
            if answer is None or self._stopping:
                break
            time.sleep(self._pace.pause(clock(), since, earliest, count))
        else:
            work.done = work.done or clock()
        self._awaited = work.leaf = None
        return work.done

    def _come_by(self, step: InFlight) -> None:
        """Wait until a step was seen to be done, or the next was called without that."""
        self._awaited = step
        while step.done is None and not self.in_flight and not self._stopping and not answers(step.leaf):
            time.sleep(COMING_BY / 1e9)
