"""A PyTorch/XLA job without collectives that trains on each ordinal: ``python xla_ordinals.py``, or under ``torchrun``.

Prints, for each ordinal, ``STEPS``, which process took them, and how the processes and ordinals are counted.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr

STEPS = 6


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02)
        return torch.full((4, 8), float(index))


def train(index: int) -> None:
    device = torch_xla.device()
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    helpers = int(xr.global_ordinal() == 0)  # each imports everything anew
    batches = torch.utils.data.DataLoader(Samples(), batch_size=None, num_workers=helpers)
    for batch in pl.MpDeviceLoader(batches, device):
        optimizer.zero_grad()
        (model(batch) ** 2).mean().backward()
        optimizer.step()
        time.sleep(0.05)
    print(STEPS, os.getpid(), xr.process_index(), xr.global_ordinal(), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["spmd"]:
        xr.use_spmd()
        train(0)
    else:
        torch_xla.launch(train)
