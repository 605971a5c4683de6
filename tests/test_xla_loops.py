"""Loops in PyTorch/XLA, in each style: exact counts of steps; and what the host keeps as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.experimental.distributed_checkpoint as xc
from observing import Observation, observed
from trainees import loader
from xla_loop import ARMED, Job, sync

from goodput_plugins.core.events import Kind


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


def optimizer_step(job: Job) -> None:
    """The loader's next batch is the marker."""
    for batch in job.loader(6):
        job.backward(batch)
        xm.optimizer_step(job.optimizer)
        job.optimizer.zero_grad()


def optimizer_step_with_barrier(job: Job) -> None:
    for batch in job.loader(6):
        job.backward(batch)
        xm.optimizer_step(job.optimizer, barrier=True)
        job.optimizer.zero_grad()


def mark_step_with_a_plain_loader(job: Job) -> None:
    for batch in loader(6):
        job.backward(batch)
        job.update()
        xm.mark_step()


def step_context(job: Job) -> None:
    for batch in job.loader(6):
        with torch_xla.step():
            job.backward(batch)
            job.update()


def compiled_function(job: Job) -> None:
    def train_step(batch: Any) -> Any:
        loss = job.backward(batch)
        job.update()
        return loss

    compiled = torch_xla.compile(train_step)
    for batch in job.loader(6):
        compiled(batch)


def no_loader(job: Job) -> None:
    batch = torch.ones(1, 4), torch.ones(1)
    for _ in range(6):
        job.backward(batch)
        job.update()
        torch_xla.sync()


def accumulated(job: Job) -> None:
    """Three micro-batches, each with a marker, make a step."""
    for number, batch in enumerate(job.loader(18)):
        job.backward(batch)
        torch_xla.sync()
        if number % 3 == 2:
            job.update()
            torch_xla.sync()


def several_steps_a_marker(job: Job) -> None:
    for batch in job.loader(6, batches_per_execution=3):
        job.backward(batch)
        job.update()


def two_epochs_and_evaluations(job: Job) -> None:
    for _ in range(2):
        for batch in job.loader(3):
            job.backward(batch)
            job.update()
        job.model.eval()
        for batch in job.loader(4):
            job.model(batch[0])
            torch_xla.sync()
        job.model.train()


def values_read_in_each_step(job: Job) -> None:
    for batch in job.loader(6):
        loss = job.backward(batch)
        job.update()
        loss.item()


def two_optimizers(job: Job) -> None:
    other = Job()
    for batch in job.loader(6):
        for each in (job, other):
            each.backward(batch)
            each.update()


def primed_optimizer(job: Job) -> None:
    xc.prime_optimizer(job.optimizer)
    sync(job)


STYLES: list[Callable[[Job], None]] = [
    optimizer_step,
    optimizer_step_with_barrier,
    sync,
    mark_step_with_a_plain_loader,
    step_context,
    compiled_function,
    no_loader,
    accumulated,
    several_steps_a_marker,
    two_epochs_and_evaluations,
    values_read_in_each_step,
    two_optimizers,
    primed_optimizer,
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_each_style_makes_six_steps(seen: Observation, style: Callable[[Job], None]) -> None:
    style(Job())
    xm.wait_device_ops()
    seen.hooks.close()
    assert len(seen.of(Kind.STEP)) == 6
    assert [event.step for event in seen.of(Kind.DEVICE)] == list(range(6))


# --- the host --------------------------------------------------------------------------------------------------------


def test_results_are_the_same_to_the_bit_and_hooks_leave_no_trace() -> None:
    def weights() -> Any:
        torch.manual_seed(0)
        job = Job()
        sync(job)
        return [parameter.detach().cpu() for parameter in job.model.parameters()]

    names = [name for name in vars(torch_xla._XLAC) if name.startswith("_xla")]
    before = [getattr(torch_xla._XLAC, name) for name in names], xm.save, pl.ParallelLoader.next_item
    plain = weights()
    with observed(*ARMED):
        watched = weights()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert ([getattr(torch_xla._XLAC, name) for name in names], xm.save, pl.ParallelLoader.next_item) == before


def test_what_a_step_raises_is_its_own_and_counting_goes_on(seen: Observation) -> None:
    job = Job()
    for number, batch in enumerate(job.loader(6)):
        with pytest.raises(ArithmeticError) if number == 2 else contextlib.nullcontext(), torch_xla.step():
            job.backward(batch)
            if number == 2:
                job.optimizer.zero_grad()
                raise ArithmeticError("the host's own")
            job.update()
    assert len(seen.of(Kind.STEP)) == 5


def test_device_time_can_be_switched_off_and_counters_may_be_cleared(
    seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch_xla.debug.metrics as met

    job = Job()
    sync(job)
    xm.wait_device_ops()
    met.clear_all()
    sync(job)
    xm.wait_device_ops()
    seen.hooks.close()
    done = [event.step or 0 for event in seen.of(Kind.DEVICE)]
    assert set(done) >= set(range(7, 12))
    starts = [event.time for event in seen.of(Kind.STEP)]
    assert all(event.time > starts[event.step or 0] for event in seen.of(Kind.DEVICE))
    monkeypatch.setenv("GOODPUT_DEVICE_TIME", "off")
    with observed(*ARMED) as later:
        sync(Job())
    assert len(later.of(Kind.STEP)) == 6 and not later.of(Kind.DEVICE)
    assert [event.data.get("device") for event in later.of(Kind.PLUGIN, name="torch_xla")] == ["unseen"]
