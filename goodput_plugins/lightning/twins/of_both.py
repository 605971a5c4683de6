"""The callback for a script that uses ``pytorch_lightning`` and ``lightning.pytorch``."""

from __future__ import annotations

import lightning.pytorch
import pytorch_lightning

from goodput_plugins.lightning import callback


class GoodputCallback(callback.GoodputCallback, pytorch_lightning.Callback, lightning.pytorch.Callback):  # type: ignore[misc]
    """:class:`~goodput_plugins.lightning.GoodputCallback` for a ``Trainer`` of either library."""
