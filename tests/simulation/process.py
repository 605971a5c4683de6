"""One life of a process that trains, from its creation to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from goodput_plugins.core.events import Activity, Event, Kind
from simulation.tape import SECOND, Attempt, Leaf, Plan, Take

HEARTBEAT = 5 * SECOND
PREFETCHER, WRITER = 5, 2
"""Threads that own no time."""


class Process:
    """A process that trains; ``clock`` is its host's time, ``busy_until`` its device's."""

    def __init__(self, plan: Plan, rng: Random, start: int, first: int, committed: int | None) -> None:
        self.plan = plan
        self.rng = rng
        self.attempt = Attempt(start, committed, plan.asynchronous)
        self.clock = start
        self.busy_until = 0
        self.finishes: list[int] = []
        self.number = first
        self.committed = committed
        self.pending: tuple[int, int] | None = None
        self.anomalies = 0
        self.last_anomaly = 0
        self.tell(Kind.START)

    # What leaves traces

    def tell(self, kind: Kind, at: int | None = None, told: int | None = None, **fields: Any) -> None:
        time = self.clock if at is None else at
        self.attempt.told.append((time if told is None else told, Event(kind, time, **fields)))

    def log(self, **payload: Any) -> None:
        self.attempt.entries.append((self.clock, payload))

    def spend(self, what: str, ns: int, take: Take | None = None, told: int | None = None) -> None:
        if ns > 0:
            self.attempt.host.append(Leaf(self.clock, self.clock + ns, what, take, told))
            self.clock += ns

    def between(self, low: float, high: float) -> int:
        return self.rng.randrange(round(low * SECOND), round(high * SECOND))

    @contextmanager
    def doing(
        self, activity: Activity, log: str | None = None, step: int | None = None, **fields: Any
    ) -> Iterator[None]:
        named = {} if log is None or "name" not in fields else {"custom_badput_event_type": fields["name"].lower()}
        self.tell(Kind.BEGIN, activity=activity, step=step if activity is Activity.SAVE else None, **fields)
        if log:
            self.log(**named, **{f"{log}_start_time": self.clock})
        yield
        self.tell(Kind.FINISH, activity=activity, step=step, **fields)
        if log:
            self.log(**named, **{f"{log}_end_time": self.clock})

    def reported(self, activity: Activity, what: str, ns: int, take: Take | None = None) -> None:
        """Something that is told when it is over; or, by other hooks, at both ends."""
        if self.plan.spans:
            self.tell(Kind.SPAN, told=self.clock + ns, activity=activity, duration=ns)
            self.spend(what, ns, take, told=self.clock + ns)
        else:
            with self.doing(activity):
                self.spend(what, ns, take)

    # Before the first step

    def begin_training(self) -> None:
        self.spend("boot", self.between(0.05, 0.5))
        self.reported(Activity.IMPORT, "import", self.between(1, 12))
        self.attempt.job_start = self.clock
        self.tell(Kind.PLUGIN, name="jax", data=self.armed())
        self.log(job_start_time=self.clock)
        with self.doing(Activity.DEVICE_INIT, "tpu_init"):
            self.spend("init", self.between(1, 20))
        self.spend("boot", self.between(0, 1))
        inside = self.rng.random() < 0.5
        with self.doing(Activity.PREPARATION, "training_prep"):
            self.spend("prep", self.between(1, 15))
            if inside:
                self.restore()
            self.spend("prep", self.between(0, 2))
        if not inside:
            self.restore()
        if self.committed is not None and self.rng.random() < 0.3:
            with self.doing(Activity.DATA_REPLAY):
                self.spend("replay", self.between(1, 9))
        with self.doing(Activity.DATA, "data_loading"):
            self.spend("data", self.between(0.2, 6))

    def armed(self) -> dict[str, Any]:
        """What a plugin says of itself."""
        device = {} if self.plan.asynchronous else {"device": "host"}
        return {"version": "0.10.2", "sees": EVERYTHING, **device}

    def restore(self) -> None:
        if self.committed is None:
            return
        start = self.clock
        with self.doing(Activity.RESTORE, step=self.committed):
            self.spend("restore", self.between(1, 25))
        self.log(**_orbax("restore", self.committed, start, self.clock - start, self.rng))

    # Steps

    def one_step(self, final: bool = False) -> None:
        plan, first = self.plan, not self.attempt.takes
        take = Take(self.number, self.clock, self.number % plan.every == 0, len(self.attempt.takes))
        self.attempt.takes.append(take)
        if take.logged:
            self.tell(Kind.STEP, step=take.number)
            self.log(step_count=take.number, step_start_time=self.clock)
        self.spend("host" if plan.asynchronous else "work", 1_000, take)
        recompiles = self.wants_anomaly() and self.rng.random() < 0.4
        if first or recompiles:
            ns = plan.compiling if first else self.size_of_anomaly()
            for activity, share in ((Activity.TRACE, 0.1), (Activity.LOWER, 0.1), (Activity.COMPILE, 0.8)):
                self.reported(activity, activity.value, round(ns * share), take)
        self.work(take, first, anomalous=not recompiles)
        self.number += 1
        self.after_step(take, final)

    def work(self, take: Take, first: bool, anomalous: bool) -> None:
        parts = [("excess", self.plan.excess)] if first else []
        parts.append(("work", round(self.plan.ideal * (1 + self.plan.jitter * self.rng.gauss(0, 1)))))
        if anomalous and self.wants_anomaly():
            parts.append(("slow", self.size_of_anomaly()))
        elif anomalous and self.rng.random() < 0.02 and len(self.attempt.takes) > 2 * self.plan.every:
            parts.append(("hiccup", round(self.plan.ideal * self.rng.uniform(0.1, 0.5))))
        if not self.plan.asynchronous:
            for what, ns in parts:
                self.spend(what, ns, take)
            return
        at = max(self.clock, self.busy_until)
        for what, ns in parts:
            if ns:
                self.attempt.device.append(Leaf(at, at + ns, what, take))
            at += ns
        self.busy_until = at
        self.finishes.append(at)
        self.tell(Kind.DEVICE, at=at, step=take.id)
        self.spend("host", self.between(0.00005, 0.0005))
        if len(self.finishes) > self.plan.depth:
            self.wait_for(self.finishes[-1 - self.plan.depth])
        if take.number % self.plan.sync_every == 0:
            self.wait_for(self.busy_until)
            self.spend("host", self.between(0.0005, 0.002))
            if self.rng.random() < 0.1:
                self.spend("host", self.between(0, 2))

    def wait_for(self, moment: int, what: str = "host") -> None:
        self.spend(what, moment - self.clock)

    def wants_anomaly(self) -> bool:
        """A stuck step or a recompilation: rarely, far apart, and never in the first steps of an attempt."""
        taken = len(self.attempt.takes)
        quiet = taken - self.last_anomaly > 2 * self.plan.every and taken > 40 * (self.plan.every + 1) // 2
        if quiet and self.anomalies < 2 and self.rng.random() < 0.02:
            self.last_anomaly, self.anomalies = taken, self.anomalies + 1
            return True
        return False

    def size_of_anomaly(self) -> int:
        limit = (self.plan.every + 1) * self.plan.ideal
        return round(limit * self.rng.uniform(1.6, 2.5)) + SECOND // 5

    def after_step(self, take: Take, final: bool) -> None:
        plan, rng = self.plan, self.rng
        if plan.save_every and take.number % plan.save_every == plan.save_every - 1:
            self.save(take.number)
        if plan.eval_every and take.number % plan.eval_every == plan.eval_every - 1:
            self.evaluate()
        if final or plan.every > 1:
            return
        self.committed = self.durable()
        writing = self.pending is not None and self.pending[0] > self.clock
        behind = self.committed is not None and take.number > self.committed + 1
        if behind and self.committed is not None and not writing and rng.random() < 0.01:
            self.restore()
            self.number = self.committed + 1
        elif rng.random() < 0.01 and len(self.attempt.takes) > self.last_anomaly + 1 > 1:
            self.number += rng.choice([1, 2])
            return
        if rng.random() < (0.5 if plan.asynchronous else 0.04):
            with self.doing(Activity.DATA, "data_loading"):
                self.spend("data", round(plan.ideal * rng.uniform(0.1, 2 if plan.asynchronous else 5)))
        elif rng.random() < 0.1:
            self.tell(Kind.BEGIN, activity=Activity.DATA, thread=PREFETCHER)
            self.tell(Kind.FINISH, at=self.clock + SECOND // 9, activity=Activity.DATA, thread=PREFETCHER)
            self.attempt.prefetches.append((self.clock, SECOND // 9))

    def evaluate(self) -> None:
        part = round(self.plan.evaluation * self.rng.uniform(0.3, 0.5))
        with self.doing(Activity.CUSTOM, "custom_badput_event", name="EVAL_STEP"):
            self.wait_for(self.busy_until, "custom:EVAL_STEP")
            self.spend("custom:EVAL_STEP", part)
            with self.doing(Activity.CUSTOM, "custom_badput_event", name="SDC_CHECK"):
                self.spend("custom:SDC_CHECK", part // 3)
            self.spend("custom:EVAL_STEP", part)

    # Checkpoints

    def save(self, step: int, final: bool = False) -> None:
        start = self.clock
        with self.doing(Activity.SAVE, step=step):
            if self.pending:
                self.wait_for(self.pending[0], "save")
            self.wait_for(self.busy_until, "save")
            self.spend("save", round(self.plan.save * self.rng.uniform(0.8, 1.2)))
        self.log(**_orbax("save", step, start, self.clock - start, self.rng))
        self.commit(step, final)

    def commit(self, step: int, final: bool) -> None:
        duration = self.plan.commit and round(self.plan.commit * self.rng.uniform(0.8, 1.2))
        when = self.clock + duration
        if self.rng.random() < 0.05 and not final:
            self.tell(Kind.COMMIT_FAILED, at=when, thread=WRITER, step=step, name="OSError: no space left")
            return
        self.tell(Kind.COMMIT, at=when, thread=WRITER, step=step, duration=duration)
        self.attempt.commits.append((when, step, duration))
        self.pending = (when, step)

    def durable(self) -> int | None:
        """The newest checkpoint that is durable by now."""
        done = [step for when, step, _ in self.attempt.commits if when <= self.clock]
        return max(done, default=-1) if done and max(done) > (self.committed or -1) else self.committed

    # Ends

    def take_notice(self) -> Attempt:
        """A preemption notice: the step is finished, saved and committed, and the exit code is 0."""
        self.attempt.noticed = True
        self.tell(Kind.NOTICE, name="preemption")
        last = self.attempt.takes[-1].number
        if not any(step == last for _, step, _ in self.attempt.commits):
            self.save(last, final=True)
        return self._leave(0.05, 0.5)

    def complete(self) -> Attempt:
        self.save(self.attempt.takes[-1].number, final=True)
        self.committed = self.durable()
        if self.rng.random() < 0.1:
            self.restore()  # the best one, for a last look at it
        return self._leave(0.05, 200)

    def _leave(self, low: float, high: float) -> Attempt:
        attempt = self.attempt
        self.wait_for(self.busy_until)
        if self.pending and self.pending[0] > self.clock:
            with self.doing(Activity.SAVE):
                self.wait_for(self.pending[0], "wait")
        self.spend("teardown", self.between(low, high))
        attempt.job_end = self.clock
        self.log(job_end_time=self.clock)
        self.spend("exit", self.between(0.01, 0.3))
        self.heartbeats(self.clock)
        attempt.how = "completed"
        self.tell(Kind.END, name="completed")
        attempt.cut(self.clock)
        return attempt

    def heartbeats(self, until: int) -> None:
        at = self.attempt.job_start
        while at < until:
            self.tell(Kind.HEARTBEAT, at=at, thread=9)
            at += HEARTBEAT

    def moment_of_death(self, fate: str, must_log: int) -> int:
        attempt, rng = self.attempt, self.rng
        earliest = attempt.job_start + 1
        if fate == "early":
            return rng.randrange(earliest, attempt.takes[0].start)
        if fate == "hang":
            return self.clock
        if fate == "user" or must_log:
            needed = attempt.logged[: max(1, must_log)]
            earliest = needed[-1].start + 1 if needed else self.clock
        leaves = [leaf for leaf in attempt.leaves(self.clock) if leaf.end > earliest]
        if self.plan.asynchronous:
            unclear = ("excess", "slow", "hiccup")
            leaves = [leaf for leaf in leaves if leaf.what not in unclear and (leaf.take is None or leaf.take.id)]
        if fate == "kill-in":
            kinds = sorted({leaf.what for leaf in leaves})
            kind = rng.choice(kinds) if kinds else ""
            leaves = [leaf for leaf in leaves if leaf.what == kind]
        if not leaves:
            self.wait_for(self.busy_until + SECOND // 100)
            return self.clock
        leaf = rng.choice(leaves)
        return rng.randrange(max(leaf.start, earliest), max(leaf.end, earliest + 1))


EVERYTHING = [
    "TPU_INITIALIZATION", "TRAINING_PREP", "PROGRAM_STARTUP", "DATA_LOADING_SYNC", "DATA_LOADING_ASYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME", "CHECKPOINT_SAVE_ASYNC",
    "WASTED_PROGRESS_FROM_DISRUPTION", "CUSTOM_BADPUT_EVENTS",
]  # fmt: skip


def _orbax(kind: str, step: int, start: int, duration: int, rng: Random) -> dict[str, Any]:
    """What Orbax's cloud logger writes of a save or a restore; at times with nulls."""
    payload: dict[str, Any] = {"event_type": kind, "step": step, "directory": "gs://b/ckpt"}
    whole, part = ("checkpoint_manager_blocking", "checkpointer_blocking") if kind == "save" else (
        "checkpoint_manager", "checkpointer")  # fmt: skip
    bare = rng.random() < 0.2
    payload |= {f"{whole}_start_time": None if bare else start}
    payload |= {f"{whole}_duration_secs": None if bare else duration / SECOND}
    payload |= {f"{part}_start_time": start, f"{part}_duration_secs": duration * (1 if bare else 0.9) / SECOND}
    if kind == "save":
        payload |= {"synchronous": False, "wait_for_prev_start_time": start, "wait_for_prev_duration_secs": 0.01}
        payload |= {"get_old_steps_start_time": None, "get_old_steps_duration_secs": None}
        payload |= {"reached_preemption": False, "preemption_received_at": None}
    return payload
