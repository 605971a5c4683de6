"""PyTorch/XLA: what a training loop on XLA devices does with its time, without a line of it changed.

The switch installs this plugin when the script imports ``torch_xla``, beside the one for ``torch``, on which it builds:
that sees optimizers, ``DataLoader``, ``torch.save`` and evaluations. This one adds what is different where operations
are only traced and run later:

- **steps**: an optimizer's step only traces; the step marker after it (``torch_xla.sync``, ``xm.mark_step``, the end of
  ``torch_xla.step()``, a device loader's next batch) compiles and dispatches the work, and belongs to the same step.
  Markers without an optimizer's step make none. Where several ordinals train in one process, each on a thread, the
  first one is counted;
- **compiling**, from the counters of the runtime, wherever it happened; the rest of such a marker is lowering;
  how long tracing took is told apart;
- **device time**, from the runtime's own record of when each program had been executed: reading it asks nothing of
  the device. With several ordinals in one process it is not known, and step times are those of the host;
- **start-up** of the runtime at the call that starts it, and from it the index of this process;
- **waits for data** in ``ParallelLoader``, without the marker that its iterator calls;
- **checkpoints**: ``xm.save``, ``torch_xla.utils.serialization``, ``CheckpointManager`` with the commit of what it
  saves in the background. ``prime_optimizer`` makes no step.

Where things are::

    install.py       what the import hooks call
    replicas.py      which thread of several is counted
    markers.py       what a step marker means
    programs.py      compiling and tracing
    device.py        when the work of a step was done
    startup.py       the runtime, and the index of this process
    data.py          waits for a device loader
    checkpoints.py   saves and restores
"""
