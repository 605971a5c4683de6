"""Lightning on an XLA device that is a CPU: ``python xla_lightning.py FOLDER`` takes ten steps and prints how many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch_xla

torch_xla.device()  # before PyTorch differentiates

import pytorch_lightning as pl  # noqa: E402
from pytorch_lightning.accelerators import XLAAccelerator  # noqa: E402
from pytorch_lightning.strategies import SingleDeviceXLAStrategy  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))
from trainees import learner, loader, trainer  # noqa: E402


class Cpu(XLAAccelerator):
    """Lightning's own asks for a TPU."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[int]:
        return [0]


strategy = SingleDeviceXLAStrategy(device=torch_xla.device())
options: dict[str, Any] = {"max_epochs": 2, "limit_val_batches": 0, "enable_checkpointing": True}
fitted = trainer(pl, sys.argv[1], accelerator=Cpu(), strategy=strategy, **options)
fitted.fit(learner(pl, train=0.05), loader(5, 0.02))
print(fitted.global_step)
