"""Train a small convolutional network on handwritten digits with PyTorch/XLA, on a TPU or on the CPU.

    PJRT_DEVICE=TPU python examples/digits_torch_xla.py --workdir ~/digits
    PJRT_DEVICE=CPU python examples/digits_torch_xla.py --workdir /tmp/digits

Interrupt it whenever you like: the same command goes on from the newest checkpoint.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


def network() -> nn.Module:
    """Two convolutions and a hidden layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def batches(data: TensorDataset, size: int, epoch: int, skipped: int, device: torch.device) -> pl.MpDeviceLoader:
    """An epoch's batches of this ordinal, shuffled by epoch, the first ``skipped`` left out."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
    mine = order[xr.global_ordinal() :: xr.world_size()][skipped * size :]
    return pl.MpDeviceLoader(DataLoader(Subset(data, mine.tolist()), size, drop_last=True), device)


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of images that the network reads right."""
    model.eval()
    right = (model(images).argmax(-1) == labels).float().mean()
    torch_xla.sync()
    model.train()
    return right.item()


def save(path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint, so that a crash leaves the old one or the new one."""
    new = path.with_suffix(".new")
    xm.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, new, global_master=True)
    if xm.is_master_ordinal(local=False):
        os.replace(new, path)


def train(index: int, args: argparse.Namespace) -> None:
    """What each ordinal runs."""
    device = torch_xla.device()
    digits = load_digits()
    images, labels = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32), torch.tensor(digits.target)
    data = TensorDataset(images[360:], labels[360:])
    test = images[:360].to(device), labels[:360].to(device)

    torch.manual_seed(0)
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    checkpoint = args.workdir / "checkpoint.pt"
    step = 0
    if checkpoint.exists():
        saved: dict[str, Any] = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        xm.master_print(f"resumed from the checkpoint after step {step}")

    began = time.perf_counter()
    per_epoch = len(data) // xr.world_size() // args.batch_size
    while step < args.steps:
        epoch, skipped = divmod(step, per_epoch)
        for pictures, names in batches(data, args.batch_size, epoch, skipped, device):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), names)
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            step += 1
            if step % args.log_every == 0:
                xm.master_print(f"step {step:4}   loss {loss.item():.4f}   {time.perf_counter() - began:5.1f} s")
            if step % args.save_every == 0 or step == args.steps:
                save(checkpoint, step, model, optimizer)
            if step >= args.steps:
                break
        right = accuracy(model, *test)
        xm.master_print(f"step {step:4}   accuracy {right:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a network that reads handwritten digits.")
    parser.add_argument("--workdir", type=Path, default=Path("digits"), help="where the checkpoint goes")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64, help="of each ordinal")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--log-every", type=int, default=50, help="steps between lines of progress")
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    torch_xla.launch(train, args=(args,))


if __name__ == "__main__":
    main()
