"""Reports made by hand, one for each kind that a person may meet; ``SAMPLES`` has them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.report import AttemptSummary, Breakdown, Finding, Report, StepFunction, StepSummary

SECOND = 1_000_000_000
EIGHT = 1_795_939_200 * SECOND
"""29 November 2026, 08:00 UTC."""

B = Bucket
ELASTIC = frozenset((B.ELASTIC_SLICE_DOWN, B.ELASTIC_SCALE_UP, B.ELASTIC_REINITIALIZATION))

SAMPLES: dict[str, Report] = {}


def sample(make: Callable[[], Report]) -> Callable[[], Report]:
    SAMPLES[make.__name__.replace("_", "-")] = make()
    return make


def spent(**seconds: float) -> Breakdown:
    """``PREP=3, PREP__IMPORTS=2``: seconds by short name of the bucket and, after ``__``, sub-source."""
    parts = {}
    for key, value in seconds.items():
        bucket, _, source = key.partition("__")
        parts[Bucket[bucket], source or None] = round(value * SECOND)
    return Breakdown(parts)


def attempt(number: int, start: float, end: float, exit: str, steps: tuple[Any, Any], **more: Any) -> AttemptSummary:
    """An attempt, its times in seconds after eight."""
    first, last = steps
    share = more.pop("goodput", 0.8)
    life = end - start
    return AttemptSummary(
        number=number,
        start=EIGHT + round(start * SECOND),
        end=EIGHT + round(end * SECOND),
        exit=exit,
        exit_code=more.get("exit_code"),
        first_step=first,
        last_step=last,
        cause=more.get("cause"),
        breakdown=spent(PRODUCTIVE=life * share, OTHER=life * (1 - share)),
    )


def report(breakdown: Breakdown, **more: Any) -> Report:
    """A report that lasts as long as its breakdown unless told otherwise."""
    wall = breakdown.elapsed + breakdown[Bucket.EXCLUDED]
    given: dict[str, Any] = {
        "run": "digits-3f2a",
        "generation": 0,
        "status": "completed",
        "start": EIGHT,
        "end": EIGHT + wall,
        "preserved": breakdown.goodput,
        "disruptions": 0,
        "attempts": (attempt(0, 0, wall / SECOND, "completed", (0, 9)),),
        "steps": StepSummary(),
        "plugins": {"jax": "0.10.2", "flax": "0.12.7", "orbax": "0.12.8"},
        "unknown": ELASTIC,
    }
    return Report(breakdown=breakdown, **{**given, **more})


def timed(ideal: float, *, last: int, kept: int | None = None, **more: Any) -> StepSummary:
    return StepSummary(
        last=last,
        max_productive=more.pop("max_productive", last),
        count=last + 1 if kept is None else kept,
        ideal=round(ideal * SECOND),
        p50=round(ideal * 1.004 * SECOND),
        p99=round(ideal * 1.09 * SECOND),
        deviation=round(ideal * 0.014 * SECOND),
        **more,
    )


@sample
def tidy_run() -> Report:
    return report(
        spent(
            PRODUCTIVE=48.2, TRAINING_PREP__IMPORTS=3.1, TRAINING_PREP=0.8, PROGRAM_STARTUP__COMPILE=1.9,
            PROGRAM_STARTUP__TRACE=0.31, PROGRAM_STARTUP__LOWER=0.12, TPU_INITIALIZATION=0.4, SAVE=0.21,
            DATA_LOADING_SYNC=0.05, OTHER__TEARDOWN=0.6, SAVE_ASYNC=2.4, DATA_LOADING_ASYNC=4.0,
        ),
        attempts=(attempt(0, 0, 55.69, "completed", (0, 218), goodput=0.8655),),
        steps=timed(0.22, last=218, source="device"),
    )  # fmt: skip


@sample
def crash_and_restart() -> Report:
    return report(
        spent(
            PRODUCTIVE=5856, WASTED_PROGRESS=604, INFRASTRUCTURE_RECOVERY=221, PROGRAM_STARTUP__COMPILE=241,
            PROGRAM_STARTUP__TRACE=30.4, PROGRAM_STARTUP__LOWER=9.1, PROGRAM_STARTUP__CACHE_LOAD=2.2,
            PROGRAM_STARTUP__FIRST_STEP=12, DATA_LOADING_SYNC=151, CUSTOM__EVAL=92, SAVE=61, RESTORE=22,
            RESTORE__DATA_REPLAY=19, TRAINING_PREP__IMPORTS=24, TRAINING_PREP=12, TPU_INITIALIZATION=14.2,
            OTHER__SLOW_STEP=13.1, OTHER__TEARDOWN=1.3, SAVE_ASYNC=310, DATA_LOADING_ASYNC=1810,
        ),
        disruptions=1,
        attempts=(
            attempt(0, 0, 3312, "signal:SIGKILL", (0, 12014), exit_code=-9, goodput=0.735),
            attempt(1, 3533, 7385, "completed", (10001, 26617), goodput=0.888),
        ),
        steps=timed(0.22, last=26617, source="device"),
        findings=(
            Finding("recompiles", 120 * SECOND, "jit(train_step) was compiled 14 times, because the last batch of "
                    "each epoch has another shape. Drop the last batch, or pad it."),
            Finding("rolled-back", 604 * SECOND, "2014 steps were done twice: the newest checkpoint was step 10000 "
                    "when attempt 0 was killed. Save more often, or on a notice of preemption."),
            Finding("torn-line", None, "The last line of one journal was torn by the kill; it was left out."),
        ),
    )  # fmt: skip


@sample
def running_live() -> Report:
    return report(
        spent(PRODUCTIVE=3011, PROGRAM_STARTUP__COMPILE=66, TRAINING_PREP=31, SAVE=12, DATA_LOADING_SYNC=402),
        status="running",
        preserved=2750 * SECOND,
        attempts=(attempt(0, 0, 3522, "running", (0, 13681), goodput=0.855),),
        steps=timed(0.22, last=13681, max_productive=12500),
        findings=(Finding("input-bound", 402 * SECOND, "The device waited for data in one step of four."),),
    )


@sample
def lost() -> Report:
    return report(
        spent(PRODUCTIVE=610, PROGRAM_STARTUP=44, TRAINING_PREP=20),
        status="lost",
        down_since=EIGHT + 674 * SECOND,
        preserved=0,
        attempts=(attempt(0, 0, 674, "lost", (0, 2771)),),
        steps=timed(0.22, last=2771, max_productive=None),
    )


@sample
def failed() -> Report:
    return report(
        spent(PRODUCTIVE=12.2, PROGRAM_STARTUP=4, TRAINING_PREP=20.2),
        status="failed",
        disruptions=1,
        down_since=EIGHT + 36_400_000_000,
        preserved=None,
        unknown=ELASTIC | {B.SAVE, B.RESTORE, B.SAVE_ASYNC},
        attempts=(attempt(0, 0, 36.4, "exception:FloatingPointError", (0, 55), exit_code=1),),
        steps=timed(0.22, last=55),
        plugins={"jax": "0.10.2"},
    )


@sample
def stopped_and_resumed() -> Report:
    return report(
        spent(PRODUCTIVE=1400, TRAINING_PREP=60, PROGRAM_STARTUP=90, EXCLUDED=43_200, SAVE=3),
        generation=2,
        status="stopped",
        down_since=EIGHT + 44_753 * SECOND,
        attempts=(
            attempt(0, 0, 800, "user", (0, 3000)),
            attempt(1, 44_000, 44_753, "user", (3001, 6180)),
        ),
        steps=timed(0.22, last=6180),
    )


@sample
def unknown_buckets() -> Report:
    unseen = frozenset(BADPUT) - {B.DATA_LOADING_SYNC, B.OTHER, B.INFRASTRUCTURE_RECOVERY}
    return report(
        spent(PRODUCTIVE=90, DATA_LOADING_SYNC=10),
        unknown=unseen | {B.DATA_LOADING_ASYNC, B.SAVE_ASYNC},
        preserved=None,
        plugins={},
        steps=timed(0.5, last=180),
    )


@sample
def no_steps() -> Report:
    return report(
        spent(TRAINING_PREP__IMPORTS=8, TRAINING_PREP=2.5, TPU_INITIALIZATION=31),
        status="running",
        preserved=0,
        attempts=(attempt(0, 0, 41.5, "running", (None, None), goodput=0),),
    )


@sample
def zero_elapsed() -> Report:
    return report(Breakdown(), attempts=(), preserved=None, plugins={}, unknown=frozenset())


@sample
def pure_outage() -> Report:
    return report(
        spent(INFRASTRUCTURE_RECOVERY=3600),
        status="lost",
        disruptions=1,
        down_since=EIGHT - 60 * SECOND,
        preserved=0,
        attempts=(),
    )


@sample
def forty_attempts() -> Report:
    exits = ["signal:SIGKILL", "signal:SIGTERM", "exception:XlaRuntimeError", "signal:SIGKILL"]
    lives = tuple(
        attempt(
            n, n * 3000, n * 3000 + 2000 + 20 * n, exits[n % 4] if n < 39 else "completed", (n * 500, n * 500 + 700),
            cause="preemption notice" if n % 4 == 1 else None, goodput=0.3 + n / 80,
        )
        for n in range(40)
    )  # fmt: skip
    return report(
        spent(
            PRODUCTIVE=50_000, WASTED_PROGRESS=21_000, INFRASTRUCTURE_RECOVERY=24_000, TRAINING_PREP=9_000,
            PROGRAM_STARTUP=14_000, OTHER__HOST_GAP=780, INFRASTRUCTURE_RECOVERY__HANG=1000,
        ),
        disruptions=39,
        attempts=lives,
        steps=timed(2.5, last=20_200),
    )  # fmt: skip


@sample
def custom_events() -> Report:
    named = {f"CUSTOM__SDC_CHECK_{n:02d}": 40 / (n + 1) for n in range(30)}
    return report(spent(PRODUCTIVE=300, **named), steps=timed(0.1, last=3000))


@sample
def gigantic_names() -> Report:
    name = "experiment/" + "very-long-" * 40 + "語" * 30 + "\x1b[31m\x07\u202e[bold]end"
    return report(
        Breakdown({(B.PRODUCTIVE, None): 50 * SECOND, (B.CUSTOM, name): 30 * SECOND, (B.OTHER, name): 20 * SECOND}),
        run=name,
        attempts=(attempt(0, 0, 100, f"exception:{name}", (10**12, 10**13), cause=name, exit_code=137),),
        status="failed",
        disruptions=1,
        steps=timed(0.1, last=10**13),
        findings=(Finding(name, 10 * SECOND, f"[red]{name}"), Finding("nan", None, "x" * 500)),
        plugins={name: name, "jax": "0.10.2"},
    )


@sample
def several_days() -> Report:
    days = 86_400
    return report(
        spent(PRODUCTIVE=31 * days, WASTED_PROGRESS=2.2 * days, ELASTIC_SLICE_DOWN=9_000, ELASTIC_SCALE_UP=4_000,
              ELASTIC_REINITIALIZATION=2_000, INFRASTRUCTURE_RECOVERY=20_000, SAVE=0.3),
        unknown=frozenset(),
        attempts=(
            attempt(0, 0, 14 * days, "lost", (0, 120_000)),
            attempt(1, 14.1 * days, 33.6 * days, "completed", (110_000, 290_000)),
        ),
        disruptions=1,
        steps=timed(9.25, last=290_000),
    )  # fmt: skip


@sample
def microseconds() -> Report:
    return report(
        spent(PRODUCTIVE=0.000_812, TRAINING_PREP=0.000_04, OTHER=0.000_000_7),
        attempts=(attempt(0, 0, 0.000_852_7, "completed", (0, 3)),),
        steps=timed(0.000_2, last=3),
    )


@sample
def two_step_functions() -> Report:
    functions = (
        StepFunction("generator_step", 218, 31 * SECOND),
        StepFunction("discriminator_step", 1_090, 9 * SECOND),
        StepFunction("a_step_that_was_not_watched_and_has_a_long_name", 3, None),
    )
    return report(spent(PRODUCTIVE=48.2, OTHER__TEARDOWN=0.6), steps=timed(0.22, last=218, functions=functions))


@sample
def long_findings() -> Report:
    sentence = "The device had nothing to do for 0.4 s after every 32nd step, and no hook of ours explains why. "
    return report(
        spent(PRODUCTIVE=99.97, OTHER__HOST_GAP=0.03),
        findings=tuple(Finding(f"finding-{n}", n * SECOND, sentence * (n + 1)) for n in range(4)),
        steps=timed(0.1, last=999),
    )
