"""Playing a job: the world that the logs are written from."""

from __future__ import annotations

from random import Random

from goodput_plugins.core.events import Event, Kind
from simulation.process import Process
from simulation.tape import SECOND, Attempt, Job, Plan

DAWN = 1_780_000_000 * SECOND
ENOUGH = 10
"""The last attempt logs so many steps at least: with none there is no ideal step time."""


def play(seed: int, *, asynchronous: bool = False) -> Job:
    """The job of that seed.

    Args:
        seed: the same seed plays the same job.
        asynchronous: the host runs ahead of the device, as JAX does; every step is logged then.
    """
    rng = Random(seed * 2 + asynchronous)
    job = Job(make_plan(seed, asynchronous, rng))
    clock, first, committed = DAWN, 0, None
    if rng.random() < 0.1:
        job.strangers.append((clock, clock + 20 * SECOND))
        clock += 60 * SECOND
    remaining = rng.choice([0, 0, 1, 1, 2, 3, 4])
    while True:
        fate = rng.choice(FATES) if remaining else rng.choice(["complete"] * 6 + ["kill", "user"])
        ended_well = bool(job.attempts) and (job.attempts[-1].how or job.attempts[-1].job_end) is not None
        must_log = ENOUGH if not remaining else 1 if ended_well else 0
        attempt, fate = _live(job, rng, clock, first, committed, fate, must_log)
        job.attempts.append(attempt)
        job.fates.append(fate)
        if not remaining:
            break
        remaining -= 1
        for _, step, _ in attempt.commits:
            committed = step if committed is None else max(step, committed)
        if fate == "forget":
            committed = None
        first = 0 if committed is None else committed + 1
        clock = attempt.end + rng.randrange(5 * SECOND, 400 * SECOND)
        if rng.random() < 0.1:
            job.strangers.append((attempt.end + SECOND, attempt.end + 3 * SECOND))
        every = job.plan.every
        job.plan.target = max(job.plan.target, ((first // every) + 40) * every - 1)
    return job


FATES = ["kill"] * 5 + ["kill-in"] * 4 + ["exception"] * 2 + ["user", "notice", "extend", "hang", "early", "forget"]
"""How an attempt that is not the last ends: killed at any moment, or inside something; by an exception; by
its user; with a save on a preemption notice; completed, to be extended later; killed in a hang; killed
before its first step; killed, and started again from nothing."""


def make_plan(seed: int, asynchronous: bool, rng: Random) -> Plan:
    """Habits drawn at random."""
    ideal = round(SECOND * 10 ** rng.uniform(-1, 0.7))
    every = 1 if asynchronous else rng.choice([1, 1, 1, 1, 1, 3, 5, 10])
    return Plan(
        seed=seed,
        asynchronous=asynchronous,
        ideal=ideal,
        jitter=rng.choice([0.0, 0.005, 0.02]),
        every=every,
        target=every * rng.randrange(60, 240 if every == 1 else 100) - 1,
        save_every=rng.choice([0, 7, 15, 20, 40]),
        save=rng.randrange(SECOND // 10, 4 * SECOND),
        commit=rng.choice([0, rng.randrange(SECOND, 30 * SECOND)]),
        eval_every=rng.choice([0, 0, 25, 50]),
        evaluation=rng.randrange(SECOND, 20 * SECOND),
        compiling=rng.randrange(2 * SECOND, 90 * SECOND),
        excess=rng.randrange(10 * SECOND),
        spans=rng.random() < 0.7,
        depth=rng.choice([1, 2, 8, 30]),
        sync_every=rng.choice([1, 10, 50]),
    )


def _live(
    job: Job, rng: Random, start: int, first: int, committed: int | None, fate: str, must_log: int
) -> tuple[Attempt, str]:
    """One life, and the fate that it really met."""
    if (fate == "hang" and job.plan.asynchronous) or (fate == "early" and must_log):
        fate = "kill"
    life = Process(job.plan, rng, start, first, committed)
    life.begin_training()
    span = job.plan.target - first + 1
    steps = span if fate in ("complete", "extend") else min(span, job.plan.every * rng.randrange(1 + must_log, 90))
    if fate == "notice":
        steps = min(span, max(steps, 3 * job.plan.every))
    for remaining in reversed(range(steps)):
        life.one_step(final=fate in ("notice", "hang") or not remaining)
    if fate == "notice":
        return life.take_notice(), fate
    if fate in ("complete", "extend"):
        return life.complete(), fate
    if fate == "hang":
        life.spend("slow", rng.randrange(40 * SECOND, 600 * SECOND), life.attempt.takes[-1])
    moment = life.moment_of_death(fate, must_log)
    life.heartbeats(moment)
    attempt = life.attempt
    attempt.cut(moment)
    durable = committed is not None or bool(attempt.commits)
    if fate == "user" and attempt.logged and durable:
        attempt.how = "user"
    elif fate == "exception":
        attempt.how = "exception:ValueError"
    else:
        fate = "kill" if fate in ("user", "kill-in") else fate
    if attempt.how:
        attempt.told.append((moment, Event(Kind.END, moment, name=attempt.how)))
        if durable and attempt.logged and rng.random() < 0.5:
            attempt.job_end = moment
            attempt.entries.append((moment, {"job_end_time": moment}))
    return attempt, fate
