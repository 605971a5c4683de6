"""JAX: what a training loop written in JAX does with its time, without a line of it changed.

The switch installs this plugin when the script imports ``jax``. It sees:

- **accelerator start-up**: ``jax.distributed.initialize``, backend discovery, each backend's
  initialization, ``jax.make_mesh``; and from them which process of how many this one is;
- **programs**: tracing, lowering, compiling and loading from the persistent cache, each with the
  function's name, on the thread that does it;
- **steps**: a call of a jitted function that applies an optimizer's update is a training step. That it
  does so is learnt while JAX traces it, once; no call is ever slowed down by looking. Functions that
  differentiate and return the state they were given (hand-written SGD) count where no optimizer is
  seen; ``jax.profiler.StepTraceAnnotation`` numbers the steps where the loop uses it; otherwise the
  first number is read once from the first step's inputs (a leaf named ``step``, else optax's ``count``);
- **evaluations**: what a jitted function does between steps, if its name says that it evaluates;
- **a coming preemption**, where the loop asks ``reached_preemption_sync_point``;
- **device time**: when each step's work was done on the device (``GOODPUT_DEVICE_TIME=off`` stops this).

Where things are::

    install.py      what the import hooks call
    functions.py    facts about jitted functions
    learning.py     ... learnt while they are traced
    loop.py         which calls are steps
    steady.py       the short way of a call that is known to be the next step
    candidates.py   ... where no optimizer is seen
    accumulation.py ... and with which of its gradients an update begins
    scans.py        how many steps a call takes, how many calls a step
    sequence.py     which of several functions' calls begin a step, and its number
    figures.py      how often each of several step functions was called, and its time
    evaluation.py   what is done between steps
    sharing.py      the loop that all adapters share; hooking what applies an update
    jitted.py       what stands in for a jitted function; ahead-of-time compiled ones
    annotations.py  StepTraceAnnotation
    inputs.py       the step number, read from a step's inputs
    outputs.py      the small output by which a step's end is recognized
    device.py       what the host's thread tells of work on the device
    watching.py     the thread that sees it end
    pace.py         ... and when it looks
    followed.py     where the host waits for each step: its next call tells
    pauses.py       when it had nothing to do inside a step of several calls
    in_flight.py    what is queued on the device
    programs.py     trace, lower, compile, cache
    backends.py     devices, distributed, mesh

Other adapters build on ``sharing.loop_of``: a library's "this applies an update" is one call of
:func:`goodput_plugins.jax.sharing.observing`.

``docs/jax.md`` has a table of all ways to write a loop.
"""
