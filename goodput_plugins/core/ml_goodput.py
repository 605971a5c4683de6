"""Writing a run in the payloads of Google's library and of Orbax's cloud logger.

Its calculator and its dashboards, and our own reader, then read the run. What is written is what
attribution found: a step where the device worked on it, of a wait what stalled. The format cannot say
everything: ``docs/google-library.md`` has its limits.

>>> for entry in entries(log, now=time.time_ns()):
...     print(json.dumps(entry))
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from goodput_plugins.core.attribution import Generation, attribute
from goodput_plugins.core.attribution.ledger import HOST_GAP, WAIT, Ledger
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.orbax_payloads import checkpoint
from goodput_plugins.core.report import Source, iso
from goodput_plugins.core.runlog import RunLog

Payload = dict[str, Any]
Told = tuple[int, Payload]
"""When an entry is written (ns since the epoch), and its payload."""

SHORTEST_GAP_NS = 1_000_000
"""Device idle that nothing explains is told from this length on."""

SIGN_OF_LIFE = {"active_slices": 1, "total_slices": 1, "available_slices": 1}
"""The format knows no heartbeat; of what it knows, only this costs nothing and means nothing else."""

_PAIRS = {
    Bucket.TPU_INITIALIZATION: "tpu_init",
    Bucket.TRAINING_PREP: "training_prep",
    Bucket.DATA_LOADING_SYNC: "data_loading",
    Bucket.ELASTIC_REINITIALIZATION: "elastic_reinit",
}
_WAITS = {Bucket.ELASTIC_SLICE_DOWN: "slice_down", Bucket.ELASTIC_SCALE_UP: "scale_up"}


def entries(log: RunLog, *, now: int) -> Iterator[Payload]:
    """The log entries of all attempts of a run, in order of time.

    Args:
        log: the run.
        now: the wall clock, ns since the epoch.
    """
    number = 0
    for generation in attribute(log, now=now).generations:
        next_step = 0
        for life, ledger in enumerate(generation.ledgers):
            known = ledger.attempt.numbers is not None
            told = sorted(_attempt(generation, life, 0 if known else next_step), key=lambda entry: entry[0])
            for at, payload in told:
                yield {
                    "insertId": f"{ledger.attempt.seen.life.id}-{number:09}",
                    "severity": "INFO",
                    "timestamp": iso(at),
                    "jsonPayload": {"job_name": log.run, **payload},
                }
                number += 1
            if ledger.numbers:
                next_step = max(next_step, ledger.numbers[-1] + (1 if known else next_step + 1))


def _attempt(generation: Generation, life: int, first: int) -> Iterator[Told]:
    """What one attempt tells; the steps of one without numbers are counted from ``first``."""
    ledger = generation.ledgers[life]
    attempt = ledger.attempt
    yield attempt.seen.start, {"job_start_time": _seconds(attempt.seen.start)}
    for segment in generation.preparation(life):
        yield from _stretch(ledger, segment.start, segment.end, (segment.bucket, segment.sub))
    for at, number in zip(ledger.begins, ledger.numbers, strict=True):
        yield at, {"step_count": number + first, "step_start_time": _seconds(at)}
    # What is compiled in a first step is its excess; of a lone one nothing else would tell how long it lasted.
    second = ledger.begins[1] if len(ledger.begins) > 1 else ledger.first_begin
    for begin, end, source in ledger.pieces_between(ledger.first_begin, ledger.until):
        if source != HOST_GAP and (source[0] is not Bucket.PROGRAM_STARTUP or begin >= second):
            yield from _stretch(ledger, begin, end, source, stepping=True)
    for begin, end, _ in ledger.waits_between(ledger.first_begin, ledger.until):
        yield from _stretch(ledger, begin, end, WAIT)
    yield from _gaps(generation, life)
    if attempt.exit in ("completed", "user"):
        yield attempt.until, {"job_end_time": _seconds(attempt.until)}
    else:
        yield attempt.until, SIGN_OF_LIFE | {"elastic_slice_counts_timestamp": _seconds(attempt.until)}


def _gaps(generation: Generation, life: int) -> Iterator[Told]:
    """Device idle that nothing explains."""
    ledger = generation.ledgers[life]
    pauses = {bisect_right(ledger.begins, begin) - 1 for begin, _, source in ledger.pieces if source == HOST_GAP}
    for step in range(len(ledger.begins)):
        if step in pauses or ledger.gap(step) >= SHORTEST_GAP_NS:
            for begin, end, bucket, sub, *_ in generation.of_step(life, step):
                if (bucket, sub) == HOST_GAP:
                    yield from _custom("HOST_GAP", begin, end)


def _stretch(ledger: Ledger, begin: int, end: int, source: Source, *, stepping: bool = False) -> Iterator[Told]:
    """A stretch of time with its owner; ``stepping``: after the first step, where a preparation begins a life."""
    bucket, sub = source
    begins_life = bucket in (Bucket.TPU_INITIALIZATION, Bucket.TRAINING_PREP)
    if bucket is Bucket.SAVE:
        yield end, _save(ledger, begin, end)
    elif bucket is Bucket.RESTORE:
        yield end, _restore(ledger, begin, end)
    elif bucket is Bucket.CUSTOM or (stepping and begins_life) or bucket not in _PAIRS.keys() | _WAITS.keys():
        yield from _custom(sub if bucket is Bucket.CUSTOM and sub else bucket.value, begin, end)
    elif bucket in _WAITS:
        kind = {"elastic_wait_event_type": _WAITS[bucket]}
        yield begin, {**kind, "elastic_wait_start_time": _seconds(begin)}
        yield end, {**kind, "elastic_wait_end_time": _seconds(end)}
    else:
        yield begin, {f"{_PAIRS[bucket]}_start_time": _seconds(begin)}
        yield end, {f"{_PAIRS[bucket]}_end_time": _seconds(end)}


def _custom(name: str, begin: int, end: int) -> Iterator[Told]:
    kind = {"custom_badput_event_type": name}
    yield begin, {**kind, "custom_badput_event_start_time": _seconds(begin)}
    yield end, {**kind, "custom_badput_event_end_time": _seconds(end)}


def _save(ledger: Ledger, begin: int, end: int) -> Payload:
    saves = [saved.label for saved in ledger.attempt.seen.saves if saved.start <= begin]
    return checkpoint("save", saves[-1] if saves else None, begin, end)


def _restore(ledger: Ledger, begin: int, end: int) -> Payload:
    restored = [label for when, label in ledger.attempt.seen.restores if when <= end]
    return checkpoint("restore", restored[-1] if restored else None, begin, end)


def _seconds(ns: int) -> float:
    return ns / 1e9
