"""What is learnt of functions while JAX traces them: what runs inside of them, they do."""

from __future__ import annotations

from goodput_plugins.jax.functions import Function, thread
from goodput_plugins.jax.scans import steps_taken


def learn(what: Function) -> None:
    """A function like ``what`` runs inside the calls open on this thread: they do what it does."""
    frames = thread.frames
    frames[0].loop.steady = None
    for frame in frames:
        function = frame.function
        if function.jitted:
            function.optimizes |= what.optimizes
            function.differentiates |= what.differentiates
            function.initializes |= what.initializes
            if what.optimizes:
                function.takes_steps(steps_taken(frame) * what.steps_per_call, frame.args, frame.kwargs)
                function.calls_per_step = max(function.calls_per_step, what.calls_per_step)
    if what.optimizes and frames[0].function.jitted:
        frames[0].loop.optimizer_seen(frames[0])


def gradient_taken() -> None:
    """``jax.grad`` runs: the jitted functions open on this thread differentiate."""
    frames = thread.frames
    for frame in frames:
        frame.function.differentiates |= frame.function.jitted
    if frames:
        frames[0].loop.sequence.read(frames[0])
