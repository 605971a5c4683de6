"""Step times in PyTorch/XLA, without a wait of ours: compared with loops that wait for the device themselves."""

from __future__ import annotations

import os
import statistics
import time

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")
os.environ.setdefault("PJRT_DEVICE", "CPU")

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from observing import Observation, observed, report_on

from goodput_plugins.core.events import Kind
from goodput_plugins.torch.install import install_torch
from goodput_plugins.torch_xla.install import install_torch_xla

ARMED = ((torch, install_torch), (torch_xla, install_torch_xla))
APART = 0.02
"""How far a step's mean time may be from the truth, in proportion."""
TURNS = 6
"""How often a busy machine may disturb what is measured."""


class Loop:
    """Steps that work so long on the host, and multiply matrices of this size so often on the device."""

    def __init__(self, *, host: float = 0.0, size: int = 4, products: int = 1) -> None:
        self.host, self.products = host, products
        self.weight = torch.nn.Parameter((torch.eye(size) / 2).to(torch_xla.device()))
        self.optimizer = torch.optim.SGD([self.weight], lr=1e-6)
        for _ in range(2):  # what is compiled is compiled now
            self.step(waits=True)

    def step(self, *, waits: bool = False) -> float:
        """Take a step, and return how many seconds it took."""
        began = time.perf_counter()
        time.sleep(self.host)
        product = self.weight
        for _ in range(self.products):
            product = product @ self.weight
        product.mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch_xla.sync()
        if waits:
            xm.wait_device_ops()
        return time.perf_counter() - began


def device_seconds(seen: Observation) -> list[float]:
    """When each step was done on the device."""
    return [event.time / 1e9 for event in seen.of(Kind.DEVICE)]


def test_the_mean_step_is_that_of_a_loop_that_waits_for_the_device_in_each_step() -> None:
    """In turns, until one is undisturbed: a busy machine is late where a loop waits."""
    loop, ratios = Loop(host=0.5), [0.0]
    while abs(ratios[-1] - 1) > APART and len(ratios) <= TURNS:
        with observed(*ARMED) as seen:
            for _ in range(5):
                loop.step()
            xm.wait_device_ops()
            seen.hooks.close()
        steps = report_on(seen).steps
        assert (steps.count, steps.source) == (5, "device")
        waiting = statistics.median(loop.step(waits=True) for _ in range(5))  # the report leaves out outliers
        ratios.append((steps.ideal or 0) / 1e9 / waiting)
    assert abs(ratios[-1] - 1) <= APART, ratios


def test_where_the_host_runs_ahead_steps_take_as_long_as_the_device_needs_for_them() -> None:
    loop, count, ratios = Loop(size=512, products=10), 10, [0.0]
    while abs(ratios[-1] - 1) > APART and len(ratios) <= TURNS:
        with observed(*ARMED) as seen:
            loop.step(waits=True)
            began = time.perf_counter()
            handed_over = [loop.step() for _ in range(count)]
            xm.wait_device_ops()
            took = time.perf_counter() - began
            seen.hooks.close()
        first, *_, last = done = device_seconds(seen)
        assert len(done) == count + 1 and took > 0.1
        ratios.append((last - first) / took)
    assert abs(ratios[-1] - 1) <= APART, ratios
    assert min(handed_over) < took / count / 2  # the call alone says nothing of the step
