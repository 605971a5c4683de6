"""Of each way to write a loop all is seen: the steps, the evaluations, the compilations; and nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import flax.linen
import flax.nnx
import flax.training.train_state
import jax
import jax.experimental.pjit
import loops.with_flax
import loops.without_flax  # noqa: F401
import numpy as np
import optax
import pytest
from loops.registry import EVALUATED_AFTER, LOOPS, Loop
from observing import Install, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.flax.install import install_linen, install_nnx, install_train_state
from goodput_plugins.jax.install import install_equinox, install_jax, install_optax, install_pjit

INSTALLS: tuple[Install, ...] = (
    (jax, install_jax),
    (jax.experimental.pjit, install_pjit),
    (optax, install_optax),
    (flax.linen, install_linen),
    (flax.training.train_state, install_train_state),
    (flax.nnx, install_nnx),
)


def installs(name: str) -> tuple[Install, ...]:
    if name != "equinox":
        return INSTALLS
    pytest.importorskip("equinox")
    return (*INSTALLS, (sys.modules["equinox"], install_equinox))


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.fixture(params=LOOPS)
def written(request: pytest.FixtureRequest) -> tuple[str, Loop]:
    return request.param, LOOPS[request.param]


def test_each_loop_is_seen_as_it_is_and_computes_what_it_does_unwatched(written: tuple[str, Loop]) -> None:
    name, loop = written
    hooks = installs(name)
    plain = bits(loop.train())
    with observed(*hooks) as seen:
        assert bits(loop.train()) == plain
    assert seen.steps == list(loop.numbers)
    compilations = seen.of(Kind.BEGIN, Activity.COMPILE, loop.program)
    assert [seen.step_of(event) for event in compilations] == list(loop.compiled_in)
    evaluations = seen.stretches(Activity.CUSTOM, "EVAL")
    assert len(evaluations) == loop.evaluations
    scale = len(loop.numbers) / 12
    assert [seen.step_of(begin) for begin, _ in evaluations] == [int(after * scale) for after in EVALUATED_AFTER]


@pytest.mark.parametrize("name", LOOPS)
def test_each_loop_that_is_tested_has_its_row_in_the_docs(name: str) -> None:
    rows = (Path(__file__).parent.parent / "docs" / "jax.md").read_text()
    alike = name.removeprefix("linen_train_state")
    assert f"`{name}`" in rows or f"`...{alike}`" in rows
