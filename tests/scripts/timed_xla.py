"""A PyTorch/XLA job that times itself: it waits for data, saves, changes a shape, and goes on from its checkpoint.

    python timed_xla.py TRUTH STEPS KILLED_AFTER

Writes what it timed to the file TRUTH as JSON, anew after each step; ends with SIGKILL after so many steps if
KILLED_AFTER is not 0. Each step is followed by a wait for the device, so that what is timed is over when it seems so.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

WAIT, SAVE, WORK = 0.4, 0.4, 0.05
SLOW_BATCHES = (2, 5, 9)
SAVED_AFTER = 4
OTHER_SHAPE = 7
CHECKPOINT = Path("checkpoint.pt")

took: Counter[str] = Counter()


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took[what] += time.perf_counter() - began  # type: ignore[assignment]


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, start: int, count: int) -> None:
        self.start, self.count = start, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index >= self.count:
            raise IndexError
        step = self.start + index
        time.sleep(WAIT if step in SLOW_BATCHES else 0)
        return torch.full((3 if step >= OTHER_SHAPE else 4, 8), float(step))


class SlowToSave:
    def __reduce__(self) -> Any:
        time.sleep(SAVE)
        return SlowToSave, ()


def main() -> None:
    truth, steps, killed_after = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    device = torch_xla.device()
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    start = 0
    if CHECKPOINT.exists():
        with timed("restore"):
            saved = torch.load(CHECKPOINT, weights_only=False)
        model.load_state_dict(saved["model"])
        start = saved["step"] + 1
    loader = torch.utils.data.DataLoader(Samples(start, steps - start), batch_size=None)
    options = {"loader_prefetch_size": 1, "device_prefetch_size": 1}
    batches = iter(pl.MpDeviceLoader(loader, device, **options))
    torch_xla.sync()
    for step in range(start, steps):
        with timed("wait"):
            batch = next(batches)
        with timed("work"):
            time.sleep(WORK)
            optimizer.zero_grad()
            (model(batch) ** 2).mean().backward()
            xm.optimizer_step(optimizer, barrier=True)
            xm.wait_device_ops()
        took["steps"] += 1
        if step % SAVED_AFTER == SAVED_AFTER - 1:
            with timed("save"):
                xm.save({"step": step, "model": model.state_dict(), "slow": SlowToSave()}, CHECKPOINT)
        truth.write_text(json.dumps(took))
        if took["steps"] == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
