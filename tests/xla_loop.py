"""A small model that trains on the first XLA device of this process, under the hooks that the switch installs."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("PJRT_DEVICE", "CPU")

import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.experimental.distributed_checkpoint as xc
import torch_xla.utils.serialization as serialization
from trainees import loader

from goodput_plugins.torch.install import install_data, install_sharded, install_torch
from goodput_plugins.torch_xla.install import (
    install_distributed_checkpoint,
    install_loader,
    install_serialization,
    install_torch_xla,
)

ARMED = (
    (torch, install_torch),
    (torch.utils.data, install_data),
    (torch.distributed.checkpoint.logger, install_sharded),
    (torch_xla, install_torch_xla),
    (pl, install_loader),
    (serialization, install_serialization),
    (xc, install_distributed_checkpoint),
)


class Job:
    """A model on the first device and what trains it."""

    def __init__(self, width: int = 4) -> None:
        self.device = torch_xla.device()
        self.model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1)).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        torch_xla.sync()

    def loader(self, count: int, seconds: float = 0.0, **options: Any) -> Any:
        return pl.MpDeviceLoader(loader(count, seconds), self.device, **options)

    def backward(self, batch: Any) -> Any:
        loss = ((self.model(batch[0].to(self.device)) - batch[1].to(self.device)) ** 2).mean()
        loss.backward()
        return loss

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def sync(job: Job) -> None:
    for batch in job.loader(6):
        job.backward(batch)
        job.update()
        torch_xla.sync()
