"""Laws of the attribution, over logs that no job would write.

Events in any order, ends without begins and begins without ends, overlapping lives, equal times, steps that
go back, unknown numbers, other threads, device times in odd order, spans that cross everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from goodput_plugins.core.attribution import Segment, attribute
from goodput_plugins.core.buckets import BADPUT, OVERLAPPED, Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import Activity, Event, Kind, in_order
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.report import Breakdown, Report
from goodput_plugins.core.runlog import Life, RunLog

DAWN = 1_780_000_000_000_000_000
SECOND = 1_000_000_000
NOW = DAWN + 10_000 * SECOND

LAWS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
"""The same examples in every run, so that a failure is one everywhere."""

# Absurd logs

moments = st.integers(0, 400).map(lambda tenths: DAWN + tenths * SECOND // 10) | st.integers(DAWN, DAWN + 40 * SECOND)
activities = st.sampled_from(list(Activity))
names = st.sampled_from([None, "eval", "EVAL", "sdc"])
threads = st.sampled_from([0, 0, 0, 0, 1, 3])
numbers = st.none() | st.integers(-1, 30) | st.just(2**62)
durations = st.integers(0, 30 * SECOND)
exits = st.sampled_from(["completed", "user", "exception:ValueError", "signal:SIGTERM", "?", None])


def event(kind: Kind, **fields: Any) -> st.SearchStrategy[Event]:
    return st.builds(lambda time, **rest: Event(kind, time, **rest), moments, **fields)


events = st.one_of(
    *[event(Kind.STEP, thread=threads, step=numbers)] * 6,
    *[event(Kind.BEGIN, thread=threads, step=numbers, activity=activities, name=names)] * 3,
    *[event(Kind.FINISH, thread=threads, step=numbers, activity=activities, name=names)] * 3,
    event(Kind.SPAN, thread=threads, step=numbers, activity=activities, name=names, duration=durations),
    event(Kind.DEVICE, step=st.integers(-1, 20)),
    event(Kind.IDLE, duration=st.none() | durations),
    event(Kind.NUMBER, step=numbers),
    event(Kind.COMMIT, step=numbers, duration=st.none() | durations),
    event(Kind.COMMIT_FAILED, step=numbers, name=st.just("OSError")),
    event(Kind.HEARTBEAT, thread=threads),
    event(Kind.NOTICE, name=st.just("preemption")),
    event(Kind.PLUGIN, name=st.just("jax"), data=st.sampled_from([None, {}, {"version": "1", "sees": ["OTHER"]}, 3])),
    event(Kind.RANK, step=st.just(0), data=st.just(1)),
    event(Kind.START),
    event(Kind.END, name=exits),
)


@st.composite
def lives(draw: st.DrawFn, unique: bool = False) -> list[Life]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        start = draw(moments)
        inside = draw(st.lists(events, max_size=14, unique_by=in_order if unique else None))
        if draw(st.booleans()):
            inside = [e._replace(time=max(e.time, start)) for e in inside]
        if unique:
            inside = list({in_order(e): e for e in inside}.values())
        foreign = draw(st.sampled_from([False] * 4 + [True]))
        found.append(Life(f"life-{number}", start, sorted(inside, key=in_order), foreign))
    return sorted(found, key=lambda life: life.start)


logs = lives().map(lambda found: RunLog("r", found))
ordered_logs = lives(unique=True).map(lambda found: RunLog("r", found))
ideals = st.none() | st.integers(1, 5 * SECOND)


def spent(segments: list[Segment]) -> Breakdown:
    total: Counter[tuple[Bucket, str | None]] = Counter()
    for s in segments:
        total[s.bucket, s.sub] += s.end - s.start
    return Breakdown(total)


def calculated(log: RunLog, **query: Any) -> Report | None:
    """The report, or None where there is nothing to report on."""
    try:
        return calculate(log, now=NOW, **query)
    except UnusableData:
        assert not attribute(log, as_of=query.get("as_of")).generations
        return None


# The law

WAIT = [Event(Kind.BEGIN, DAWN, activity=Activity.DATA), Event(Kind.STEP, DAWN), Event(Kind.HEARTBEAT, DAWN + SECOND)]
WAIT_OF_NO_TIME = RunLog("r", [Life("life-0", DAWN, WAIT)])
STEP_BEFORE_ITS_PROCESS = RunLog(
    "r", [Life("life-0", DAWN, []), Life("life-1", DAWN + SECOND, [Event(Kind.STEP, DAWN)])]
)


@LAWS
@given(logs, st.none() | moments, ideals)
@example(WAIT_OF_NO_TIME, None, None)
@example(STEP_BEFORE_ITS_PROCESS, None, None)
def test_segments_cut_the_time_without_gap_or_overlap(log: RunLog, as_of: int | None, ideal: int | None) -> None:
    before = 0
    starts = {life.start for life in log.lives}
    for generation in attribute(log, as_of=as_of, ideal=ideal).generations:
        segments = list(generation.segments())
        assert all(s.start < s.end for s in segments)
        assert all(a.end == b.start for a, b in pairwise(segments))
        assert all(s.bucket not in OVERLAPPED for s in segments)
        assert generation.disruptions >= 0
        if segments:
            assert segments[0].start in starts
            assert segments[0].start >= before
            before = segments[-1].end


@LAWS
@given(logs, st.none() | moments, ideals)
@example(STEP_BEFORE_ITS_PROCESS, None, None)
def test_buckets_sum_to_the_elapsed_time_to_the_nanosecond(log: RunLog, as_of: int | None, ideal: int | None) -> None:
    report = calculated(log, as_of=as_of, ideal=ideal)
    assume(report is not None)
    assert report is not None
    breakdown = report.breakdown
    assert sum(breakdown[b] for b in (Bucket.PRODUCTIVE, *BADPUT)) == breakdown.elapsed
    assert breakdown.elapsed + breakdown[Bucket.EXCLUDED] == report.end - report.start
    assert all(ns >= 0 for ns in breakdown.spent.values())
    text = report.to_json()
    assert (text["goodput_percent"] is None) == (breakdown.elapsed == 0)
    assert report.preserved is None or 0 <= report.preserved <= breakdown.goodput


@LAWS
@given(logs)
def test_the_timeline_begins_with_a_life_and_ends_with_the_last_sign(log: RunLog) -> None:
    for generation in attribute(log).generations:
        segments = list(generation.segments())
        if segments:
            starts = {life.start for life in log.lives}
            told = [e for life in log.lives for e in life.events]
            signs = {e.time + (e.duration or 0 if e.kind is Kind.SPAN else 0) for e in told}
            assert segments[0].start in starts
            assert segments[-1].end <= max(signs | starts)


@LAWS
@given(logs, st.lists(moments | st.just(NOW), min_size=3, max_size=3, unique=True).map(sorted), ideals)
def test_adjacent_windows_add_up(log: RunLog, cuts: list[int], ideal: int | None) -> None:
    count = len(attribute(log).generations)
    assume(count)
    low, middle, high = cuts
    for number in range(count):
        query = {"generation": number, "ideal": ideal}
        first, second, whole = (
            calculate(log, now=NOW, window=window, **query).breakdown
            for window in ((low, middle), (middle, high), (low, high))
        )
        assert first + second == whole


@LAWS
@given(logs, ideals)
def test_a_window_over_everything_is_the_whole_report(log: RunLog, ideal: int | None) -> None:
    report = calculated(log, ideal=ideal)
    assume(report is not None and report.start < report.end)
    assert report is not None
    window = calculate(log, now=NOW, window=(report.start, report.end), generation=report.generation, ideal=ideal)
    assert owned(window.breakdown) == owned(report.breakdown)


def owned(breakdown: Breakdown) -> Breakdown:
    """Without overlapped work."""
    return Breakdown({source: ns for source, ns in breakdown.spent.items() if source[0] not in OVERLAPPED})


# Arrival


@LAWS
@given(ordered_logs, st.randoms(use_true_random=False), ideals)
def test_the_order_of_arrival_does_not_matter(log: RunLog, rng: Random, ideal: int | None) -> None:
    shuffled = RunLog("r", [replace(life, events=rng.sample(life.events, len(life.events))) for life in log.lives])
    rng.shuffle(shuffled.lives)
    assert calculated(shuffled, ideal=ideal) == calculated(log, ideal=ideal)


# Foreign entries

KEYS = ["job", "tpu_init", "training_prep", "data_loading", "elastic_reinit"]
ends = st.sampled_from(["start", "end"])
when = st.integers(0, 400).map(lambda tenths: 1_780_000_000 + tenths / 10)
amounts = st.none() | st.floats(0, 20) | st.integers(0, 20)


def edge(key: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda end, time, **rest: {**rest, f"{key}_{end}_time": time}, ends, when, **more)


payloads = st.one_of(
    *[st.builds(lambda step, time: {"step_count": step, "step_start_time": time}, st.integers(0, 20), when)] * 4,
    *map(edge, KEYS),
    edge("custom_badput_event", custom_badput_event_type=st.sampled_from(["eval", "EVAL", "sdc"])),
    edge("elastic_wait", elastic_wait_event_type=st.sampled_from(["scale_up", "slice_down"])),
    st.fixed_dictionaries(
        {
            "event_type": st.just("save"),
            "step": st.none() | st.integers(0, 20),
            "checkpoint_manager_blocking_start_time": st.none() | when,
            "checkpoint_manager_blocking_duration_secs": amounts,
            "checkpointer_blocking_start_time": st.none() | when,
            "checkpointer_blocking_duration_secs": amounts,
        }
    ),
    st.fixed_dictionaries(
        {
            "event_type": st.sampled_from(["restore", "emergency_restore"]),
            "step": st.none() | st.integers(0, 20),
            "checkpoint_manager_start_time": st.none() | when,
            "checkpoint_manager_duration_secs": amounts,
            "checkpointer_start_time": st.none() | when,
            "checkpointer_duration_secs": amounts,
        }
    ),
)


@st.composite
def entry_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    written = draw(st.lists(payloads, min_size=1, max_size=20))
    return [
        {
            "timestamp": f"2026-05-28T20:{27 + number // 60:02}:{number % 60:02}Z",
            "insertId": f"{number:08}",
            "severity": "INFO",
            "jsonPayload": {"job_name": "j", **payload},
        }
        for number, payload in enumerate(written)
    ]


def reports_on(entries: list[dict[str, Any]], **query: Any) -> list[Report | None]:
    return [calculated(log, **query) for log in read_entries(entries)]


@LAWS
@given(entry_lists(), st.none() | moments)
def test_entries_obey_the_law_too(entries: list[dict[str, Any]], as_of: int | None) -> None:
    for report in reports_on(entries, as_of=as_of):
        if report is not None:
            assert report.breakdown.elapsed + report.breakdown[Bucket.EXCLUDED] == report.end - report.start


def untimed_save(second: int) -> dict[str, Any]:
    """A save whose place is the entry's own timestamp."""
    payload = {"job_name": "j", "event_type": "save", "step": 0, "checkpointer_blocking_duration_secs": None}
    return {"timestamp": f"2026-05-28T20:27:{second:02}Z", "insertId": str(second), "jsonPayload": payload}


@LAWS
@given(entry_lists(), st.randoms(use_true_random=False))
@example([untimed_save(1), untimed_save(0)], Random(0))
@example([untimed_save(0), untimed_save(1)], Random(0))
def test_entries_may_arrive_in_any_order_and_twice(entries: list[dict[str, Any]], rng: Random) -> None:
    again = entries + rng.choices(entries, k=len(entries))
    again += [{**entry, "insertId": f"x{i}"} for i, entry in enumerate(rng.choices(entries, k=3))]
    rng.shuffle(again)
    assert reports_on(again) == reports_on(entries)


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@LAWS
@given(entry_lists(), st.data())
def test_nonsense_in_entries_spoils_no_law(entries: list[dict[str, Any]], data: st.DataObject) -> None:
    for _ in range(5):
        payload = data.draw(st.sampled_from(entries))["jsonPayload"]
        payload[data.draw(st.sampled_from(sorted(payload)))] = data.draw(garbage)
    entries.append({"textPayload": "nothing"})
    for report in reports_on(entries):
        if report is not None:
            assert report.breakdown.elapsed + report.breakdown[Bucket.EXCLUDED] == report.end - report.start


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e30, "yesterday", True, [], {}])
def test_a_time_that_is_no_time_is_left_out(value: object) -> None:
    good = [
        {"jsonPayload": {"job_name": "j", "job_start_time": 1_780_000_000.0}},
        {"jsonPayload": {"job_name": "j", "step_count": 0, "step_start_time": 1_780_000_010.0}},
        {"jsonPayload": {"job_name": "j", "step_count": 1, "step_start_time": 1_780_000_012.0}},
        {"jsonPayload": {"job_name": "j", "job_end_time": 1_780_000_014.0}},
    ]
    bad = {"jsonPayload": {"job_name": "j", "step_count": 2, "step_start_time": value}}
    (with_it,), (without,) = reports_on([*good, bad]), reports_on(good)
    assert with_it is not None and without is not None
    assert with_it.breakdown == without.breakdown


# What one event may change

IDEAL = 2 * SECOND


@st.composite
def tidy_logs(draw: st.DrawFn) -> RunLog:
    """One or two lives that train: activities lie inside their steps, and every end is there."""
    found, clock = [], DAWN
    for number in range(draw(st.integers(1, 2))):
        start = clock
        told = [Event(Kind.START, clock)]
        for step in range(draw(st.integers(2, 7))):
            clock += SECOND
            told.append(Event(Kind.STEP, clock, step=step))
            for activity in draw(st.lists(activities, max_size=2)):
                clock += draw(st.integers(0, SECOND))
                told.append(Event(Kind.BEGIN, clock, activity=activity))
                if draw(st.booleans()):
                    clock += SECOND
                    told.append(Event(Kind.BEGIN, clock, activity=Activity.CUSTOM, name="SDC"))
                    clock += SECOND
                    told.append(Event(Kind.FINISH, clock, activity=Activity.CUSTOM, name="SDC"))
                clock += draw(st.integers(1, 3 * SECOND))
                told.append(Event(Kind.FINISH, clock, activity=activity))
        if draw(st.booleans()):
            told.append(Event(Kind.END, clock + SECOND, name=draw(st.sampled_from(["user", "exception:X"]))))
        clock += 20 * SECOND
        found.append(Life(f"life-{number}", start, sorted(told, key=in_order)))
    return RunLog("r", found)


def owners(log: RunLog, low: int, high: int) -> list[tuple[int, int, Bucket, str | None]]:
    """Who owns what between two moments, merged."""
    merged: list[tuple[int, int, Bucket, str | None]] = []
    for generation in attribute(log, ideal=IDEAL).generations:
        for s in generation.segments():
            start, end = max(s.start, low), min(s.end, high)
            if start >= end:
                continue
            if merged and merged[-1][1:] == (start, s.bucket, s.sub):
                merged[-1] = (merged[-1][0], end, s.bucket, s.sub)
            else:
                merged.append((start, end, s.bucket, s.sub))
    return merged


def without(log: RunLog, life: int, index: int) -> RunLog:
    kept = list(log.lives)
    told = kept[life].events
    kept[life] = replace(kept[life], events=told[:index] + told[index + 1 :])
    return RunLog(log.run, kept)


@LAWS
@given(tidy_logs(), st.data())
def test_a_lost_end_never_swallows_more_than_its_step(log: RunLog, data: st.DataObject) -> None:
    ends = [
        (number, index)
        for number, life in enumerate(log.lives)
        for index, e in enumerate(life.events)
        if e.kind is Kind.FINISH
    ]
    assume(ends)
    number, index = data.draw(st.sampled_from(ends))
    told = log.lives[number].events
    starts = [e.time for e in told if e.kind is Kind.STEP]
    low = max(t for t in starts if t <= told[index].time)
    high = min((t for t in starts if t > low), default=None)
    torn = without(log, number, index)
    assert owners(torn, 0, low) == owners(log, 0, low)
    if high is not None:
        assert owners(torn, high, NOW) == owners(log, high, NOW)


def completed_steps(log: RunLog) -> Callable[[RunLog], list[list[tuple[int, int, Bucket, str | None]]]]:
    spans = []
    for life, after in zip(log.lives, [*log.lives[1:], None], strict=True):
        starts = [e.time for e in life.events if e.kind is Kind.STEP and (after is None or e.time <= after.start)]
        if starts:
            spans.append((min(starts), max(starts)))
    return lambda changed: [owners(changed, low, high) for low, high in spans]


@LAWS
@given(tidy_logs(), st.data())
def test_a_heartbeat_never_changes_a_completed_step(log: RunLog, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(log.lives) - 1))
    life = log.lives[number]
    after = log.lives[number + 1].start if number + 1 < len(log.lives) else life.events[-1].time + 60 * SECOND
    beat = Event(Kind.HEARTBEAT, data.draw(st.integers(life.start, after)), thread=9)
    changed = list(log.lives)
    changed[number] = replace(life, events=sorted([*life.events, beat], key=in_order))
    steps = completed_steps(log)
    assert steps(RunLog("r", changed)) == steps(log)


@LAWS
@given(logs, moments, ideals)
def test_only_events_up_to_as_of_count(log: RunLog, as_of: int, ideal: int | None) -> None:
    known = RunLog(
        "r",
        [
            replace(life, events=[e for e in life.events if e.time <= as_of])
            for life in log.lives
            if life.start <= as_of
        ],
    )
    report = calculated(log, as_of=as_of, ideal=ideal)
    assert report == calculated(known, as_of=as_of, ideal=ideal)
    if report is not None:
        assert report.end <= as_of
