"""Graphs of PyTorch/XLA: what is compiled at which step, and how long tracing takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

import torch
import torch_xla
from observing import Observation, observed
from xla_loop import ARMED, Job, sync

from goodput_plugins.core.events import Activity, Fact, Kind
from goodput_plugins.torch.install import install_torch
from goodput_plugins.torch_xla.install import install_torch_xla
from goodput_plugins.torch_xla.programs import OUTSIDE, TRAINING


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


def compiled(seen: Observation, name: str | None = None) -> list[int]:
    """In which step, counted from 0, each compilation lies."""
    return [seen.step_of(event) for event in seen.of(Kind.SPAN, Activity.COMPILE, name)]


def test_a_change_of_shape_compiles_at_its_step_and_lowering_is_told_apart(seen: Observation) -> None:
    job = Job(width=7)
    for number in range(8):
        size = 3 if number < 5 else 2
        job.backward((torch.ones(size, 4), torch.ones(size, 1)))
        job.update()
        torch_xla.sync()
    assert compiled(seen, TRAINING) == [0, 5]
    compiling, lowering = seen.of(Kind.SPAN, Activity.COMPILE), seen.of(Kind.SPAN, Activity.LOWER)
    assert len(lowering) == 2
    for before, after in zip(lowering, compiling, strict=True):
        assert before.time + (before.duration or 0) == after.time
        assert 0 < (after.duration or 0) < 60e9


def test_what_is_compiled_where_a_value_is_read_is_no_training_graph(seen: Observation) -> None:
    job = Job(width=5)
    sync(job)
    before = len(compiled(seen))
    print(job.model(torch.ones(3, 4).to(job.device)).sum().item())
    torch_xla.sync()
    assert len(compiled(seen)) == before + 1
    assert len(compiled(seen, OUTSIDE)) == 1


def test_compilations_of_before_are_not_told(seen: Observation) -> None:
    sync(Job(width=6))
    with observed((torch, install_torch), (torch_xla, install_torch_xla)) as later:
        job = Job(width=6)
        sync(job)
    assert len(later.of(Kind.STEP)) == 6 and not compiled(later)


def test_tracing_is_told_in_sum_and_apart_from_compiling(seen: Observation) -> None:
    sync(Job(width=9))
    seen.hooks.close()
    (traced,) = [event for event in seen.of(Kind.FACT) if event.name == Fact.TRACING]
    assert (traced.data, traced.step) == ("XLA", 6)
    compiling = sum(event.duration or 0 for event in seen.of(Kind.SPAN, Activity.COMPILE))
    assert 0 < (traced.duration or 0) < compiling
