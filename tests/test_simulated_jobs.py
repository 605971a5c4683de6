"""500 random jobs, each of a known truth: every second is found where it went.

A bucket may be off by 0.1 % of the elapsed time, one step, or 2.1 s, whichever is largest; elapsed time,
their sum and disruptions are exact. A failure names the job's kind and seed.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import simulation

from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.report import Report

HOUR = 3_600_000_000_000
BY_SUB_SOURCE = (Bucket.CUSTOM, Bucket.OTHER, Bucket.PROGRAM_STARTUP, Bucket.RESTORE, Bucket.INFRASTRUCTURE_RECOVERY)
LOST = (Bucket.WASTED_PROGRESS, Bucket.INFRASTRUCTURE_RECOVERY, Bucket.OTHER)
"""Where steps may be found that a crash cut off and no log shows."""
HOST, DEVICE, FOREIGN = range(300), range(100), range(300, 400)


def errors(job: Any, report: Report, truth: Any) -> dict[str, tuple[float, float]]:
    """(reported, true) seconds of whatever is further off than it may be."""
    allowed = tolerance(job, truth)
    spent = report.breakdown
    off: dict[str, tuple[float, float]] = {}
    for bucket in (Bucket.PRODUCTIVE, Bucket.EXCLUDED, *BADPUT):
        either = truth.either if bucket in LOST else 0
        if not truth[bucket] - allowed <= spent[bucket] <= truth[bucket] + either + allowed:
            off[bucket.value] = (spent[bucket] / 1e9, truth[bucket] / 1e9)
    reported, true = sum(spent[b] for b in LOST), sum(truth[b] for b in LOST) + truth.either
    if abs(reported - true) > allowed:
        off["lost"] = (reported / 1e9, true / 1e9)
    for bucket in BY_SUB_SOURCE:
        subs = {sub for b, sub in truth.spent if b is bucket and sub} | set(spent.detail(bucket))
        for sub in subs:
            reported, true = spent.detail(bucket).get(sub, 0), truth.spent[bucket, sub]
            if abs(reported - true) > allowed + truth.either:
                off[f"{bucket.value}.{sub}"] = (reported / 1e9, true / 1e9)
    return off


def truth_elapsed(truth: Any) -> int:
    return int(truth.end - truth.start - truth[Bucket.EXCLUDED])


def tolerance(job: Any, truth: Any) -> float:
    """0.1 % of elapsed, one step, or 2.1 s, in ns."""
    return float(max(truth_elapsed(truth) / 1000, job.plan.ideal, 2_100_000_000))


def check_a_journal(seed: int, asynchronous: bool) -> None:
    job = simulation.play(seed, asynchronous=asynchronous)
    truth = simulation.truth(job)
    report = calculate(simulation.journal(job), now=truth.end + HOUR)
    told = f"seed {seed}, {job.fates}"
    assert (report.start, report.end) == (truth.start, truth.end), told
    assert report.breakdown.elapsed == truth_elapsed(truth), told
    assert errors(job, report, truth) == {}, told
    assert report.disruptions == truth.disruptions, told
    assert len(report.attempts) == len(job.attempts), told
    allowed = tolerance(job, truth)
    assert abs(report.breakdown[Bucket.SAVE_ASYNC] - truth.overlapped[Bucket.SAVE_ASYNC]) <= allowed, told
    if asynchronous:
        waits = truth.overlapped[Bucket.DATA_LOADING_ASYNC]
        assert abs(report.breakdown[Bucket.DATA_LOADING_ASYNC] - waits) <= allowed, told
    if "forget" not in job.fates and truth.max_productive is not None:
        highest = report.steps.max_productive
        assert highest is not None and truth.max_productive - job.plan.every < highest <= truth.max_productive, told
        loose = allowed + (job.plan.every - 1) * job.plan.ideal  # between two logged steps nothing is known
        assert report.preserved is None or abs(report.preserved - truth.preserved) <= loose, told


@pytest.mark.parametrize("seed", HOST)
def test_where_the_host_is_the_device_a_journal_tells_where_every_second_went(seed: int) -> None:
    check_a_journal(seed, asynchronous=False)


@pytest.mark.parametrize("seed", DEVICE)
def test_where_the_host_runs_ahead_device_times_tell_where_every_second_went(seed: int) -> None:
    check_a_journal(seed, asynchronous=True)


@pytest.mark.parametrize("seed", [*FOREIGN, *HOST])
def test_entries_of_googles_library_tell_where_every_second_went(seed: int) -> None:
    job = simulation.play(seed)
    rng = Random(seed)
    hosts, lose = rng.choice([1, 1, 2]), rng.choice([0.0, 0.01])
    entries = simulation.entries(job, hosts=hosts, lose=lose)
    rng.shuffle(entries)
    (log,) = read_entries(entries)
    truth = simulation.truth(job, foreign=True)
    report = calculate(log, now=truth.end + HOUR)
    told = f"seed {seed}, {hosts} hosts, {lose} lost, {job.fates}"
    copies = (hosts - 1) * 1_000_000_000 // 200
    assert abs(report.breakdown.elapsed - truth_elapsed(truth)) <= copies + 10_000, told
    assert errors(job, report, truth) == {}, told
    if job.fates[-1] == "complete":
        assert report.disruptions == truth.disruptions, told
    assert report.breakdown.elapsed + report.breakdown[Bucket.EXCLUDED] == report.end - report.start, told
