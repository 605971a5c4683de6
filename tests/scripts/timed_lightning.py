"""A Lightning script that times itself, with sleeps planted where a real job loses time. It knows nothing of goodput.

    python timed_lightning.py FOLDER TIMES

Every stretch that it times is a line of the file TIMES, ``[name, step, start, end]`` in ns since the epoch, written
through at once, so that a SIGKILL takes none. It goes on from FOLDER/last.ckpt if that is there.
"""

import atexit
import json
import os
import sys
import time
from pathlib import Path

FOLDER, TIMES = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(name, start, end=None, step=None):
    os.write(TIMES, json.dumps([name, step, start, end or time.time_ns()]).encode() + b"\n")


atexit.register(lambda: note("exit", time.time_ns()))  # registered first, so it runs last

import pytorch_lightning as pl  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))
from trainees import Samples, learner, trainer  # noqa: E402

STEPS, SAVE_EVERY, VALIDATE_EVERY, ACCUMULATED = 48, 12, 20, 2
DATA, WORK, VALIDATION, WRITE, READ = 0.03, 0.05, 0.1, 0.25, 0.5


class TimedLoader(DataLoader):
    """A loader whose batches take their time, and which takes the time of each."""

    def __init__(self, count, name):
        super().__init__(Samples(count, DATA), batch_size=1)
        self.stretch = name

    def __iter__(self):
        start = time.time_ns()
        for batch in super().__iter__():
            note(self.stretch, start)
            yield batch
            start = time.time_ns()


class SlowFiles(pl.plugins.io.TorchCheckpointIO):
    def save_checkpoint(self, checkpoint, path, storage_options=None):
        start = time.time_ns()
        time.sleep(WRITE)
        super().save_checkpoint(checkpoint, path, storage_options)
        note("save", start, step=checkpoint["global_step"])

    def load_checkpoint(self, path, *args, **kwargs):
        start = time.time_ns()
        time.sleep(READ)
        checkpoint = super().load_checkpoint(path, *args, **kwargs)
        note("restore", start, step=checkpoint["global_step"])
        return checkpoint


class Stopwatch(pl.Callback):
    """Times what a step works, and each validation."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.start, self.step = time.time_ns(), trainer.global_step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        note("work", self.start, step=self.step)
        if trainer.global_step != self.step:
            print(self.step, flush=True)

    def on_validation_start(self, trainer, pl_module):
        self.validation = time.time_ns()

    def on_validation_end(self, trainer, pl_module):
        note("validation", self.validation)


def main():
    FOLDER.mkdir(exist_ok=True)
    last = FOLDER / "last.ckpt"
    every = pl.callbacks.ModelCheckpoint(
        dirpath=FOLDER, every_n_train_steps=SAVE_EVERY, filename="last", enable_version_counter=False
    )
    fits = trainer(
        pl,
        FOLDER,
        max_epochs=-1,
        max_steps=STEPS,
        accumulate_grad_batches=ACCUMULATED,
        val_check_interval=VALIDATE_EVERY * ACCUMULATED,
        check_val_every_n_epoch=None,
        enable_checkpointing=True,
        callbacks=[Stopwatch(), every],
        plugins=[SlowFiles()],
    )
    train, validate = TimedLoader(STEPS * ACCUMULATED, "data"), TimedLoader(2, "validation-data")
    model = learner(pl, train=WORK, validate=VALIDATION)
    fits.fit(model, train, validate, ckpt_path=last if last.exists() else None)
    note("trained", time.time_ns())


if __name__ == "__main__":
    main()
