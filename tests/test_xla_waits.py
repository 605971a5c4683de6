"""Waits for a device loader in PyTorch/XLA, without the marker that hides in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from observing import Observation, observed
from trainees import Samples
from xla_loop import ARMED, Job, sync

from goodput_plugins.core.events import Activity, Kind

SLEEP = 0.2


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


def test_a_wait_ends_where_the_batch_is_there_and_leaves_the_marker_out(seen: Observation) -> None:
    job, waited = Job(), 0.0
    batches = iter(job.loader(5, SLEEP))
    for number in range(5):
        if number:
            torch_xla.sync()
            xm.wait_device_ops()
        began = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - began
        job.backward(batch)
        job.update()
    with pytest.raises(StopIteration):
        next(batches)
    told = sum(end.time - begin.time for begin, end in seen.stretches(Activity.DATA, "ParallelLoader")) / 1e9
    assert told == pytest.approx(waited, abs=max(0.1, 0.02 * waited))
    threads = {event.thread for event in seen.of(Kind.BEGIN, Activity.DATA, "ParallelLoader")}
    assert threads == {0}
    assert {event.thread for event in seen.of(Kind.BEGIN, Activity.DATA, "DataLoader")} == {1}


def test_the_marker_in_a_loader_is_no_wait(seen: Observation) -> None:
    job = Job(width=512)
    for batch in job.loader(4):
        job.backward(batch)
        for _ in range(40):  # a graph that takes long to compile
            job.backward(batch)
        job.update()
    compiling = sum(event.duration or 0 for event in seen.of(Kind.SPAN, Activity.COMPILE)) / 1e9
    assert compiling > 0.2
    assert seen.seconds(Activity.DATA, "ParallelLoader") < compiling / 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loader_that_fails_ends_as_it_does_without_us(seen: Observation) -> None:
    class Failing(Samples):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("the host's own")

    job = Job()
    assert list(pl.MpDeviceLoader(torch.utils.data.DataLoader(Failing(3)), job.device)) == []
    sync(job)
    assert len(seen.of(Kind.STEP)) == 6


def test_batches_that_a_loader_reads_ahead_after_a_restore_are_no_replay(seen: Observation, tmp_path: Path) -> None:
    job = Job()
    xm.save(job.model.state_dict(), tmp_path / "c.pt")
    torch.load(tmp_path / "c.pt")
    for number, batch in enumerate(job.loader(12, 0.02)):
        if number < 8:
            continue
        job.backward(batch)
        job.update()
    (replay,) = seen.of(Kind.SPAN, Activity.DATA_REPLAY)
    assert replay.thread == 0
    assert (replay.duration or 0) / 1e9 == pytest.approx(8 * 0.02, abs=0.1)
    assert len(seen.of(Kind.STEP)) == 4
