"""Train a small network on the handwritten digits that scikit-learn ships, with PyTorch Lightning.

    GOODPUT_PLUGINS=auto python examples/lightning_digits.py --workdir /tmp/lightning-digits
    goodput report

Interrupt it whenever you like: the same command goes on from ``last.ckpt``. It knows nothing of goodput; without the
variable, ``Trainer(callbacks=[GoodputCallback()])`` with ``from goodput_plugins.lightning import GoodputCallback`` does
the same for what Lightning sees.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(pl.LightningModule):
    """Two convolutions and a hidden layer."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.network = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        images, labels = batch
        right = (self.network(images).argmax(-1) == labels).float().mean()
        self.log("accuracy", right, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a network that reads handwritten digits.")
    parser.add_argument("--workdir", type=Path, default=Path("lightning-digits"), help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=2, help="batches of a step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    args = parser.parse_args()

    pl.seed_everything(0, verbose=False)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits.target).long()
    train, test = TensorDataset(images[360:], labels[360:]), TensorDataset(images[:360], labels[:360])

    saves = pl.callbacks.ModelCheckpoint(
        dirpath=args.workdir, filename="last", every_n_train_steps=args.save_every, enable_version_counter=False
    )
    trainer = pl.Trainer(
        max_steps=args.steps,
        max_epochs=-1,
        accumulate_grad_batches=args.accumulate,
        check_val_every_n_epoch=10,
        callbacks=[saves],
        default_root_dir=args.workdir,
        logger=False,
        enable_model_summary=False,
    )
    last = args.workdir / "last.ckpt"
    model = Digits(args.learning_rate)
    trainer.fit(
        model,
        DataLoader(train, args.batch_size, shuffle=True, drop_last=True),
        DataLoader(test, 120),
        ckpt_path=last if last.exists() else None,
    )
    (found,) = trainer.validate(model, DataLoader(test, 120), verbose=False)
    print(f"done: {trainer.global_step} steps, accuracy {found['accuracy']:.1%}")


if __name__ == "__main__":
    main()
