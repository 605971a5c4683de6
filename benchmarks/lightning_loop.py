"""What a batch of a Lightning ``Trainer`` costs more with our callback than with an empty one.

    python benchmarks/lightning_loop.py [--rounds 100] [--batches 10]

One ``fit`` of a small model, in which an empty callback and ours, with all that it hooks, take turns of some batches
(empty, ours, ours, empty), so that whatever else the machine does meets both. A round gives one difference; with the
defaults each of the two sees 2,000 batches. The time that the training thread needed a processor is judged (exit code
1 above the bound); the time that passed has the machine's noise.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from timing import machine, verdict
from turns import KINDS, tell

from goodput_plugins.core.guard import guard_of
from goodput_plugins.core.patching import Hooks
from goodput_plugins.core.session import current
from goodput_plugins.lightning import GoodputCallback
from goodput_plugins.lightning.install import install_lightning

BOUND_US = 20.0
TURNS = "empty", "ours", "ours", "empty"
WARM_UP = 5
"""Rounds that do not count."""


class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.ones(96) / 96, torch.ones(1)


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        hidden = [torch.nn.Linear(96, 96) for _ in range(4)]
        self.network = torch.nn.Sequential(*hidden, torch.nn.Linear(96, 1))

    def training_step(self, batch: Any, index: int) -> Any:
        return ((self.network(batch[0]) - batch[1]) ** 2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-4)


class Turns(pl.Callback):
    """Hooks ours and the empty callback in turns; ``told`` has what a batch took in each, in us: (processor, wall)."""

    def __init__(self, hooks: Hooks, rounds: int, batches: int) -> None:
        self.told: list[tuple[float, float]] = []
        self._hooked = [(owner, name, vars(owner)[name]) for owner, name in hooks.patches.places]
        hooks.patches.undo()
        self._plain = [(owner, name, vars(owner).get(name)) for owner, name, _ in self._hooked]
        self._set(self._hooked)  # the fit begins under them
        self._callbacks = {"empty": pl.Callback(), "ours": GoodputCallback()}
        self._turns = [*TURNS * (WARM_UP + rounds)]
        self._batches = batches
        self._seen = 0
        self._begun = 0.0, 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, *arguments: Any) -> None:
        if self._seen % self._batches == 0:
            if self._seen:
                taken = time.thread_time() - self._begun[0], time.perf_counter() - self._begun[1]
                self.told.append((taken[0] / self._batches * 1e6, taken[1] / self._batches * 1e6))
            if not self._turns:
                trainer.should_stop = True
                return
            self._hook(trainer, self._turns.pop(0))
            self._begun = time.thread_time(), time.perf_counter()
        self._seen += 1

    def _hook(self, trainer: Any, turn: str) -> None:
        trainer.callbacks[1] = self._callbacks[turn]
        self._set(self._hooked if turn == "ours" else self._plain)

    def _set(self, places: list[tuple[Any, str, Any]]) -> None:
        for owner, name, value in places:
            if value is not None:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--batches", type=int, default=10, help="in each turn")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GOODPUT_DIR"] = folder
        session = current()
        hooks = Hooks(session.recorder, guard_of("lightning"), at_close=session.at_close)
        install_lightning(pl, hooks)
        turns = Turns(hooks, options.rounds, options.batches)
        quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        fits = pl.Trainer(
            accelerator="cpu",
            enable_checkpointing=False,
            max_epochs=1,
            default_root_dir=folder,
            callbacks=[turns, GoodputCallback()],
            **quiet,
        )
        fits.fit(Model(), torch.utils.data.DataLoader(Stream(), batch_size=16))
        told = turns.told[WARM_UP * len(TURNS) :]
        rounds = [told[at : at + 4] for at in range(0, len(told), 4)]
        bounds = [
            tell(kind, [[turn[at] for turn in four] for four in rounds], "batch") for at, kind in enumerate(KINDS)
        ]
        print(f"bound: {BOUND_US:.0f} us of a processor, {verdict(bounds[0], BOUND_US)}; {machine()}")
        session.close()
    return int(bounds[0] > BOUND_US)


if __name__ == "__main__":
    sys.exit(main())
