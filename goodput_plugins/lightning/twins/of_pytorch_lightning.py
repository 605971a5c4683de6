"""The callback for ``pytorch_lightning``."""

from __future__ import annotations

import pytorch_lightning

from goodput_plugins.lightning import callback


class GoodputCallback(callback.GoodputCallback, pytorch_lightning.Callback):  # type: ignore[misc]
    """:class:`~goodput_plugins.lightning.GoodputCallback` for a ``pytorch_lightning.Trainer``."""
