"""Simulated jobs in the payloads of Google's library and Orbax, each with where its seconds truly went.

``cases/NAME.json`` are the entries, ``cases/NAME.answer.json`` the answer. Each bucket comes out within
0.1 % of elapsed, one step or 2.1 s, whichever is largest; disruptions exactly. ``CUT_OFF_STEP`` is the time
between the start of the step that a crash cut off and the crash: wasted progress or recovery.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.report import Report

HERE = Path(__file__).with_name("cases")
SHARED = Path(__file__).parents[2] / "shared" / "cases"
"""More of them, where a collection lies beside the clone."""

CASES = {
    path.name.removesuffix(".answer.json"): path
    for home in (SHARED, HERE)
    if home.is_dir()
    for path in sorted(home.glob("*.answer.json"))
}
STEP = 2.0
"""Seconds that a step of these jobs takes."""


def of(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Entries and answer."""
    entries = json.loads(path.with_name(path.name.replace(".answer", "")).read_text())
    return entries, json.loads(path.read_text())


def report_on(entries: list[dict[str, Any]]) -> Report:
    (log,) = read_entries(entries)
    return calculate(log, now=4_000_000_000_000_000_000)


def test_cases_are_here() -> None:
    assert len(list(HERE.glob("*.answer.json"))) >= 9


@pytest.mark.parametrize("name", CASES)
def test_a_case_comes_out_as_it_truly_was(name: str) -> None:
    entries, answer = of(CASES[name])
    report = report_on(entries)
    true = dict(answer["badput_seconds"])
    cut_off = true.pop("CUT_OFF_STEP", 0.0)
    allowed = max(answer["elapsed_seconds"] / 1000, STEP, 2.1)
    events = true.pop("CUSTOM_BADPUT_EVENTS", {})
    reported = report.to_json()["badput_seconds"]
    custom = reported.pop("CUSTOM_BADPUT_EVENTS") or {}

    assert report.breakdown.elapsed / 1e9 == pytest.approx(answer["elapsed_seconds"], abs=0.001)
    assert report.disruptions == answer["disruptions"]
    assert report.breakdown.goodput / 1e9 == pytest.approx(answer["goodput_seconds"], abs=allowed)
    assert custom == pytest.approx(events, abs=allowed)
    loose = {Bucket.WASTED_PROGRESS, Bucket.INFRASTRUCTURE_RECOVERY}
    for bucket, seconds in reported.items():
        expected = true.get(bucket, 0.0)
        either = cut_off if bucket in loose else 0.0
        assert expected - allowed <= (seconds or 0.0) <= expected + either + allowed, bucket
    lost = sum(reported[bucket] or 0.0 for bucket in loose)
    assert lost == pytest.approx(sum(true.get(bucket, 0.0) for bucket in loose) + cut_off, abs=allowed)


@pytest.mark.parametrize("name", CASES)
def test_the_buckets_of_a_case_sum_to_its_elapsed_time_exactly(name: str) -> None:
    entries, _ = of(CASES[name])
    report = report_on(entries)
    spent = report.breakdown
    assert sum(spent[b] for b in (Bucket.PRODUCTIVE, *BADPUT)) == spent.elapsed
    assert spent.elapsed + spent[Bucket.EXCLUDED] == report.end - report.start
    text = report.to_json()
    badput = [sum(ns.values()) if isinstance(ns, dict) else ns or 0.0 for ns in text["badput_seconds"].values()]
    assert text["goodput_seconds"] + sum(badput) == pytest.approx(text["elapsed_seconds"], abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_case_does_not_depend_on_the_order_of_its_entries_nor_on_duplicates(name: str) -> None:
    entries, _ = of(CASES[name])
    rng = Random(name)
    again = entries + rng.sample(entries, len(entries) // 2)
    again = [*again, *({**entry, "insertId": f"again-{i}"} for i, entry in enumerate(entries[::3]))]
    rng.shuffle(again)
    assert report_on(again) == report_on(entries)
