"""PyTorch: what a training loop does with its time, without a line of it changed.

The switch installs this plugin when the script imports ``torch``. It sees:

- **waits for data**: starting a ``DataLoader``'s iterator (worker processes included) and each next batch, on the
  thread that waits; a loader inside a loader counts once; worker processes record nothing;
- **steps**: an optimizer's step ends a step; the next one begins with the first batch that is fetched after it, so
  that micro-batches belong together. Saves and evaluations in between belong to the step before;
- **evaluation**: from ``eval()`` to ``train()`` of the module that the optimizer trains (``GOODPUT_EVAL=off`` stops
  this);
- **checkpoints**: ``torch.save`` and ``torch.load`` of something that holds the state of a module or an optimizer;
  ``torch.distributed.checkpoint``, with the commit of what was saved in the background; the checkpoints of the
  Hugging Face ``Trainer``, of ``Accelerator`` and of Fabric as a whole;
- **start-up**: ``init_process_group`` (and from it the rank), CUDA, ``torch.compile``;
- **device time** where the trained parameters are on a CUDA device: an event behind each step, read later. On a CPU
  the device is the host.

Where a trainer of Lightning runs, its own plugin tells the steps, and this one tells none.

Step numbers: PyTorch has none that survive a restart. Each save and load carries the identity of its file, so that
attribution can tell at which step a restarted run goes on; where it cannot, the count that an optimizer keeps is told.

Where things are::

    install.py       what the import hooks call
    loop.py          which calls are steps
    data.py          waits for a DataLoader
    evaluation.py    from eval() to train()
    checkpoints.py   saves and restores, nested calls as one
    states.py        whether an object holds the state of a module or optimizer; an optimizer's own count
    files.py         the identity of a file
    sharded.py       torch.distributed.checkpoint, through its logger
    trainers.py      checkpoints of the Hugging Face Trainer and of Accelerate
    startup.py       process groups, CUDA, torch.compile
    device.py        when the work of a step was done on a CUDA device
"""
