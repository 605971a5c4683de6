"""What Orbax checkpoints cost, and which steps they keep.

Under the switch every ``CheckpointManager``, checkpointer and function of v1 is watched; nothing to
write. Without it, one line watches one manager and starts a run::

    from goodput_plugins.orbax import wrap

    manager = wrap(ocp.CheckpointManager(directory))

What the journal gets:

============================  ==========================================================================
SAVE begins, finishes         the blocking part, waiting for the save before included; begins once it is
                              decided that this step is saved, and has the checkpoint's step
SAVE named ``wait``           the host waited (``wait_until_finished``, ``close``, ``result``), or was
                              asked to save and declined after more than 1 ms; it is no checkpoint
RESTORE begins, finishes      the same for a restore, of a manager or of a checkpointer
COMMIT                        that step is durable; with the time it took after its blocking part
COMMIT_FAILED                 the background part failed, and that step is lost
============================  ==========================================================================

**The step is on the FINISH only if the call succeeded**: a restore that found nothing, or that read
another directory than the manager's own, resumes nothing. Where the step was not known at the BEGIN
(``restore(None)``) the FINISH has it. A checkpointer that is called directly has a step if its
folder is named like one (``40``, ``step_40``, ``checkpoint_40``), else none.

A save that was cut off by a crash has a BEGIN, perhaps a FINISH, and no COMMIT: it keeps nothing.

Files: ``install`` (what is hooked), ``watch`` (what each call means), ``operations`` (nested calls),
``saves`` (from the blocking part to the commit), ``steps`` (whose step it is), ``by_hand`` (``wrap``).
"""

from __future__ import annotations

from goodput_plugins.orbax.by_hand import wrap

__all__ = ["wrap"]
