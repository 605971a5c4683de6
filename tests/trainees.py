"""Models and data for Lightning and plain PyTorch: tiny, with sleeps where a real job would work or wait."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

os.environ |= {"USE_TORCH_XLA": "0", "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v4-8"}
"""Where PyTorch/XLA is installed: what these models train on is the CPU, and nobody looks for a TPU by the network."""


class Samples(Dataset):  # type: ignore[type-arg]
    """``count`` samples, each of which takes ``seconds`` to come."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self.count = count
        self.seconds = seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        return torch.full((4,), float(index)), torch.ones(1)


class Stream(IterableDataset):  # type: ignore[type-arg]
    """The same, of a length that nobody knows."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self.samples = Samples(count, seconds)

    def __iter__(self) -> Iterator[Any]:
        return (self.samples[index] for index in range(len(self.samples)))


def loader(count: int, seconds: float = 0.0, *, stream: bool = False) -> Any:
    """Batches of one sample."""
    return DataLoader(Stream(count, seconds) if stream else Samples(count, seconds), batch_size=1)


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))


def learner(library: ModuleType, *, train: float = 0.0, validate: float = 0.0, **overrides: Any) -> Any:
    """A ``LightningModule`` of that library whose batches take so many seconds; methods may be overridden."""

    class Learner(library.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def loss(self, batch: Any) -> Any:
            return 1e-6 * ((self.network(batch[0]) - batch[1]) ** 2).mean()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            time.sleep(train)
            return self.loss(batch)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            time.sleep(validate)

        test_step = predict_step = validation_step

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    return type("Learner", (Learner,), overrides)()


def trainer(library: ModuleType, folder: Any, **options: Any) -> Any:
    """A ``Trainer`` on the CPU that prints and logs nothing."""
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "num_sanity_val_steps": 0,
        "max_epochs": 1,
        "default_root_dir": str(folder),
    }
    return library.Trainer(**quiet | options)
