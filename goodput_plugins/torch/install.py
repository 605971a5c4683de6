"""What the import hooks call when parts of PyTorch have been imported."""

from __future__ import annotations

from types import ModuleType

from goodput_plugins.core.patching import Hooks
from goodput_plugins.torch.data import waiting


def install_data(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``torch.utils.data``."""
    waiting(hooks, module.DataLoader, "__iter__")
    waiting(hooks, module.dataloader._BaseDataLoaderIter, "__next__")
