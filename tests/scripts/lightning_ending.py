"""Trains with Lightning and ends in one of several ways. It knows nothing of goodput-plugins.

python lightning_ending.py HOW
"""

import os
import signal
import sys
import time
from pathlib import Path

import pytorch_lightning as pl
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent.parent))
from trainees import Samples, learner, trainer

HOW = sys.argv[1]
LAST = 4


def training_step(self, batch, batch_idx):
    time.sleep(0.02)
    if self.global_step == LAST:
        if HOW == "interrupt":
            raise KeyboardInterrupt
        if HOW == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
    return self.loss(batch)


def main():
    fits = trainer(pl, ".", max_epochs=2)
    try:
        fits.fit(learner(pl, training_step=training_step), DataLoader(Samples(5), batch_size=1))
    except SystemExit as error:
        if HOW == "SIGTERM":
            time.sleep(0.3)  # the way out
        raise error


if __name__ == "__main__":
    main()
