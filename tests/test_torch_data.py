"""Waiting for a DataLoader is told for as long as the training thread waits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch_data = pytest.importorskip("torch.utils.data")

from observing import Observation, observed, plain  # noqa: E402

from goodput_plugins.core.events import Activity, Kind  # noqa: E402
from goodput_plugins.torch.install import install_data  # noqa: E402

SLEEP = 0.05


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((torch_data, install_data)) as observation:
        yield observation


class Sleepy(torch_data.Dataset):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index >= len(self):
            raise IndexError
        time.sleep(SLEEP)
        return index


class OverALoader(torch_data.IterableDataset):  # type: ignore[misc, name-defined]
    def __iter__(self) -> Any:
        return iter(torch_data.DataLoader(Sleepy(), batch_size=2))


def waits(seen: Observation) -> list[float]:
    return [(end.time - begin.time) / 1e9 for begin, end in seen.stretches(Activity.DATA)]


LOADING = """
import json, time
import torch.utils.data
from observing import observed
from goodput_plugins.core.events import Activity
from goodput_plugins.torch.install import install_data

class Sleepy(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        time.sleep(0.05)
        return index

def load():
    loader = torch.utils.data.DataLoader(Sleepy(), batch_size=2, num_workers={workers})
    waited, batches = 0.0, []
    begun = time.perf_counter()
    iterator = iter(loader)
    while True:
        batch = next(iterator, None)
        waited += time.perf_counter() - begun
        if batch is None:
            return waited, batches
        batches.append(batch.tolist())
        time.sleep(0.02)
        begun = time.perf_counter()

with observed((torch.utils.data, install_data)) as seen:
    waited, batches = load()
threads = sorted({{event.thread for event in seen.events}})
print(json.dumps([batches, waited, seen.seconds(Activity.DATA), threads]))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_waits_are_what_the_script_waited(workers: int) -> None:
    done = plain(LOADING.format(workers=workers))
    batches, waited, told, threads = json.loads(done.stdout)
    assert batches == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert abs(told - waited) < max(0.02 * waited, 0.1)
    assert told > 2 * SLEEP
    assert threads == [0]


def test_the_training_thread_owns_nothing_between_the_waits(seen: Observation) -> None:
    begun = time.perf_counter()
    for _ in torch_data.DataLoader(Sleepy(), batch_size=4):
        time.sleep(0.2)
    elapsed = time.perf_counter() - begun
    assert 8 * SLEEP <= sum(waits(seen)) <= elapsed - 0.4


def test_a_loader_inside_a_loader_waits_once(seen: Observation) -> None:
    assert len(list(torch_data.DataLoader(OverALoader(), batch_size=2))) == 2
    depth = 0
    for event in seen.events:
        depth += 1 if event.kind is Kind.BEGIN else -1
        assert depth in (0, 1)
    assert sum(waits(seen)) >= 8 * SLEEP


def test_a_data_set_that_fails_closes_its_wait_and_raises_its_own_error(seen: Observation) -> None:
    class Failing(Sleepy):
        def __getitem__(self, index: int) -> int:
            raise KeyError("the host's own error")

    with pytest.raises(KeyError, match="the host's own error"):
        list(torch_data.DataLoader(Failing()))
    assert len(seen.stretches(Activity.DATA)) == 2


@pytest.mark.parametrize("method", ["begin", "finish", "inside"])
def test_loading_goes_on_when_a_recorder_fails(
    method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("a fault of ours")

    with observed((torch_data, install_data), errors_are_raised=False) as seen:
        monkeypatch.setattr(seen.hooks.recorder, method, fails)
        assert len(list(torch_data.DataLoader(Sleepy(), batch_size=4))) == 2
        assert not seen.hooks.guard.on
    assert capsys.readouterr().err.count("failed and is off from here on") == 1


def test_uninstalling_restores_the_methods() -> None:
    iterator = torch_data.dataloader._BaseDataLoaderIter
    before = vars(torch_data.DataLoader)["__iter__"], vars(iterator)["__next__"]
    with observed((torch_data, install_data)):
        assert vars(iterator)["__next__"] is not before[1]
    assert (vars(torch_data.DataLoader)["__iter__"], vars(iterator)["__next__"]) == before
