"""PyTorch Lightning, as ``pytorch_lightning`` or ``lightning.pytorch``.

With the switch every ``Trainer`` gets the callback by an entry point; nothing to write. Without it, or besides::

    from goodput_plugins.lightning import GoodputCallback

    trainer = Trainer(callbacks=[GoodputCallback()])

Both at once count once. What the journal gets:

=====================  ==============================================================================
STEP                   an optimizer's window begins, numbered by ``trainer.global_step``: micro-batches of one
                       accumulation belong together; a last, partial window counts like any other
DATA                   the training thread waits for a batch, the first prefetch included
PREP                   from the beginning of ``fit`` to its first batch, the sanity check included
CUSTOM                 EVAL (validation), TEST, PREDICT
SAVE, COMMIT           ``Trainer.save_checkpoint``, whoever calls it; of ``AsyncCheckpointIO`` the blocking part, and
                       the commit when the file is written
RESTORE                from ``ckpt_path``: loading the file, the states of modules, optimizers and loops
DEVICE_INIT            the strategy's environment: process groups, devices
=====================  ==============================================================================

A further ``Trainer`` in the same process that restores nothing trains something new: its steps are counted on from
those of the one before, since nothing is lost.

Where things are::

    entry.py            the entry points
    callback.py         GoodputCallback
    twins/              the callback on each library's own base class
    install.py          what is hooked, by the switch or by hand
    watch.py            what each call means
    saves.py            saves, from their begin to their commit
    fabric.py           the checkpoints of Fabric, whose loops the ``torch`` plugin sees

Importing this package imports neither library.
"""

from __future__ import annotations

from typing import Any

__all__ = ["GoodputCallback"]


def __getattr__(name: str) -> Any:
    if name == "GoodputCallback":
        from goodput_plugins.lightning.callback import GoodputCallback

        return GoodputCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
