"""The callback for ``lightning.pytorch``."""

from __future__ import annotations

import lightning.pytorch

from goodput_plugins.lightning import callback


class GoodputCallback(callback.GoodputCallback, lightning.pytorch.Callback):  # type: ignore[misc]
    """:class:`~goodput_plugins.lightning.GoodputCallback` for a ``lightning.pytorch.Trainer``."""
