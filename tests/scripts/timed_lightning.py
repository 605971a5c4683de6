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


class Stopwatch(pl.Callback):
    """Times validations, and what a step works: from batch to batch, less saves and validations."""

    def __init__(self):
        self.start = self.step = self.lost = None

    def works(self, start):
        self.start, self.lost = start, 0

    def worked(self):
        if self.start is not None:
            now = time.time_ns()
            note("work", self.start, now - self.lost, self.step)
            self.works(now)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.step = trainer.global_step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.worked()
        if trainer.global_step != self.step:
            print(self.step, flush=True)

    def on_validation_start(self, trainer, pl_module):
        self.validation = time.time_ns()

    def on_validation_end(self, trainer, pl_module):
        now = time.time_ns()
        note("validation", self.validation, now)
        self.lost += now - self.validation


class TimedLoader(DataLoader):
    """A loader whose batches take their time, and which takes the time of each."""

    def __init__(self, count, name, watch=None):
        super().__init__(Samples(count, DATA), batch_size=1)
        self.stretch, self.watch = name, watch

    def __iter__(self):
        start = time.time_ns()
        for batch in super().__iter__():
            now = time.time_ns()
            note(self.stretch, start, now)
            if self.watch is not None:
                self.watch.works(now)
            yield batch
            if self.watch is not None:
                self.watch.worked()
            start = time.time_ns()


class SlowFiles(pl.plugins.io.TorchCheckpointIO):
    def __init__(self, watch):
        self.watch = watch

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        start = time.time_ns()
        time.sleep(WRITE)
        super().save_checkpoint(checkpoint, path, storage_options)
        now = time.time_ns()
        note("save", start, now, step=checkpoint["global_step"])
        self.watch.lost += now - start

    def load_checkpoint(self, path, *args, **kwargs):
        start = time.time_ns()
        time.sleep(READ)
        checkpoint = super().load_checkpoint(path, *args, **kwargs)
        note("restore", start, step=checkpoint["global_step"])
        return checkpoint


def main():
    FOLDER.mkdir(exist_ok=True)
    watch = Stopwatch()
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
        callbacks=[watch, every],
        plugins=[SlowFiles(watch)],
    )
    train, validate = TimedLoader(STEPS * ACCUMULATED, "data", watch), TimedLoader(2, "validation-data")
    model = learner(pl, train=WORK, validate=VALIDATION)
    fits.fit(model, train, validate, ckpt_path=last if last.exists() else None)
    note("trained", time.time_ns())


if __name__ == "__main__":
    main()
