"""Each way of writing a loop has its exact count of steps, and the first number is the true one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flax.linen
import flax.nnx
import flax.training.train_state
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import jax_utils, nnx
from flax.training.train_state import TrainState
from observing import Observation, armed, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.flax.install import install_linen, install_nnx, install_train_state
from goodput_plugins.jax.install import install_jax, install_optax

X, Y = jnp.ones((4, 8)), jnp.ones((4, 1))


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(
        (jax, install_jax),
        (optax, install_optax),
        (flax.linen, install_linen),
        (flax.training.train_state, install_train_state),
        (flax.nnx, install_nnx),
    ) as observation:
        yield observation


class Net(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x: Any) -> Any:
        return flax.linen.Dense(1)(flax.linen.relu(flax.linen.Dense(16)(x)))


class NnxNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Linear(8, 16, rngs=rngs)
        self.b = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.b(nnx.relu(self.a(x)))


def linen_state(tx: Any = None) -> Any:
    net = Net()
    params = net.init(jax.random.key(0), X)["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=tx or optax.adam(1e-2))


def linen_step() -> Callable[..., Any]:
    def train_step(state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return ((state.apply_fn({"params": params}, x) - y) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    return train_step


def linear_loss(params: Any, x: Any) -> Any:
    return ((x @ params["w"]) ** 2).mean()


def weights() -> dict[str, Any]:
    return {"w": jnp.ones((8, 1))}


def optax_step(tx: Any) -> Callable[..., Any]:
    def step(params: Any, state: Any, x: Any) -> Any:
        updates, state = tx.update(jax.grad(linear_loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state

    return step


def test_linen_train_state_with_a_ragged_batch_and_evaluations(seen: Observation) -> None:
    train_step = jax.jit(linen_step())

    @jax.jit
    def eval_step(state: Any, x: Any) -> Any:
        return state.apply_fn({"params": state.params}, x).mean()

    state = linen_state()
    for i in range(20):
        rows = 4 if i != 12 else 3
        state, _ = train_step(state, X[:rows], Y[:rows])
        if i % 5 == 4:
            eval_step(state, X)
    assert seen.steps == list(range(20))
    compiles = seen.of(Kind.BEGIN, Activity.COMPILE, "jit(train_step)")
    assert [seen.step_of(event) for event in compiles] == [0, 12]


def test_nnx_with_a_ragged_batch_and_evaluations(seen: Observation) -> None:
    model = NnxNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def train_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        value, grads = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
        optimizer.update(model, grads)
        return value

    @nnx.jit
    def eval_step(model: Any, x: Any) -> Any:
        return model(x).mean()

    for i in range(20):
        rows = 4 if i != 12 else 3
        train_step(model, optimizer, X[:rows], Y[:rows])
        if i % 5 == 4:
            eval_step(model, X)
    assert seen.steps == list(range(20))
    compiles = seen.of(Kind.BEGIN, Activity.COMPILE, "jit(train_step)")
    assert [seen.step_of(event) for event in compiles] == [0, 12]


def test_pmap_over_two_devices() -> None:
    done = armed(
        """
import jax.numpy as jnp
from flax import jax_utils
tx = optax.adam(0.1)
def train_step(params, state, x):
    grads = jax.lax.pmean(jax.grad(lambda p: ((x @ p["w"]) ** 2).mean())(params), "b")
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state
step = jax.pmap(train_step, axis_name="b", donate_argnums=(0, 1))
evaluate = jax.pmap(lambda p, x: (x @ p["w"]).mean())
params = {"w": jnp.ones((8, 1))}
params, state = jax_utils.replicate((params, tx.init(params)))
for _ in range(10):
    params, state = step(params, state, jnp.ones((2, 4, 8)))
evaluate(params, jnp.ones((2, 4, 8)))
print(jax.local_device_count(), seen.steps, len(seen.of(Kind.BEGIN, Activity.COMPILE, "jit(train_step)")) > 0)
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert done.stdout.strip() == f"2 {list(range(10))} True", done.stderr


def test_hand_written_sgd_numbered_by_annotations(seen: Observation) -> None:
    class Trainer:
        @partial(jax.jit, static_argnums=0, donate_argnums=1)
        def step(self, params: Any, x: Any) -> Any:
            loss, grads = jax.value_and_grad(linear_loss)(params, x)
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    trainer, params = Trainer(), weights()
    for i in range(100, 110):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            params, _ = trainer.step(params, X)
    assert seen.steps == list(range(100, 110))


def test_an_annotation_wins_over_the_number_in_the_state_and_holds_one_step(seen: Observation) -> None:
    step, state = jax.jit(linen_step()), linen_state()
    for i in range(500, 503):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            state, _ = step(state, X, Y)
            state, _ = step(state, X, Y)
    state, _ = step(state, X, Y)
    assert seen.steps == [500, 501, 502, 503]


def test_an_annotation_around_unknown_work_is_the_step_unless_it_is_an_evaluation(seen: Observation) -> None:
    work = jax.jit(lambda x: x * 2)
    for i in range(7, 10):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            work(X)
        with jax.profiler.StepTraceAnnotation("eval", step_num=i):
            work(X)
    assert seen.steps == [7, 8, 9]


def test_ahead_of_time_then_jit_then_split_then_eager(seen: Observation) -> None:
    tx, params = optax.adamw(1e-3), weights()
    state = tx.init(params)
    step = optax_step(tx)
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(params, state, X).compile()
    for _ in range(10):
        params, state = compiled(params, state, X)
    assert len(seen.steps) == 10

    again = jax.jit(step)
    again.eval_shape(params, state, X)
    jax.make_jaxpr(again)(params, state, X)
    assert len(seen.steps) == 10
    for _ in range(5):
        params, state = again(params, state, X)
    assert len(seen.steps) == 15

    gradients = jax.jit(lambda params, x: jax.grad(linear_loss)(params, x))
    update = jax.jit(lambda grads, state, params: tx.update(grads, state, params))
    for _ in range(4):
        updates, state = update(gradients(params, X), state, params)
        params = optax.apply_updates(params, updates)
    assert seen.steps == list(range(19))


def test_a_split_step_counts_once_from_its_first_call(seen: Observation) -> None:
    tx, params = optax.adam(1e-3), weights()
    state = tx.init(params)
    gradients = jax.jit(jax.grad(linear_loss))

    @jax.jit
    def update(grads: Any, state: Any, params: Any) -> Any:
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(4):
        params, state = update(gradients(params, X), state, params)
    assert seen.steps == [0, 1, 2, 3]


def test_eager_updates_count_once_however_they_nest(seen: Observation) -> None:
    state = linen_state()
    for _ in range(3):
        grads = jax.grad(lambda params, state=state: (state.apply_fn({"params": params}, X) ** 2).mean())(state.params)
        state = state.apply_gradients(grads=grads)
    assert seen.steps == [0, 1, 2]


def test_hand_written_sgd_counts_from_the_first_call(seen: Observation) -> None:
    @jax.jit
    def sgd(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(linear_loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    params = weights()
    for _ in range(5):
        params, _ = sgd(params, X)
    assert seen.steps == [None] * 5
    assert [event.time for event in seen.sink.events if event.kind is Kind.STEP] == sorted(
        event.time for event in seen.of(Kind.STEP)
    )


def test_a_single_hand_written_step_is_told_at_the_end(seen: Observation) -> None:
    sgd = jax.jit(lambda params, x: jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(linear_loss)(params, x)))
    sgd(weights(), X)
    assert seen.steps == []
    seen.hooks.uninstall()
    assert seen.steps == [None]


def test_gradients_that_carry_no_state_are_no_steps(seen: Observation) -> None:
    saliency = jax.jit(lambda params, x: jax.grad(lambda x: linear_loss(params, x))(x))
    for _ in range(3):
        saliency(weights(), X)
    assert seen.steps == []


def test_an_update_traced_before_as_a_function_of_its_own_still_makes_the_outer_one_a_step(seen: Observation) -> None:
    tx, params = optax.adam(1e-3), weights()
    inner = jax.jit(optax_step(tx))
    state = tx.init(params)
    jax.eval_shape(inner, params, state, X)
    outer = jax.jit(lambda params, state, x: inner(params, state, x))
    for _ in range(3):
        params, state = outer(params, state, X)
    assert seen.steps == [0, 1, 2]


def test_a_jitted_method_and_a_decorator_with_arguments(seen: Observation) -> None:
    tx = optax.adam(1e-3)

    @jax.jit(static_argnames="twice")
    def step(params: Any, state: Any, x: Any, twice: bool = False) -> Any:
        return optax_step(tx)(params, state, x)

    params = weights()
    state = tx.init(params)
    for _ in range(3):
        params, state = step(params, state, X, twice=True)
    assert seen.steps == [0, 1, 2]


def test_a_step_is_told_before_its_compilation_ends_and_starts_where_the_call_did(seen: Observation) -> None:
    step, state = jax.jit(linen_step()), linen_state()
    before = seen.hooks.recorder.now()
    step(state, X, Y)
    lines = seen.sink.events
    told = next(place for place, event in enumerate(lines) if event.kind is Kind.STEP)
    compiling = next(place for place, event in enumerate(lines) if event.name == "jit(train_step)")
    assert told < compiling
    trace = seen.of(Kind.BEGIN, Activity.TRACE, "train_step")[0]
    assert before <= lines[told].time <= trace.time


def test_an_update_in_a_function_of_its_own_begins_with_its_gradient(seen: Observation) -> None:
    tx, params = optax.adam(1e-3), weights()
    state, gradient = tx.init(params), jax.jit(jax.value_and_grad(lambda params, x: ((x @ params["w"]) ** 2).mean()))

    @jax.jit
    def update(params: Any, state: Any, grads: Any) -> Any:
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    now, asked = seen.hooks.recorder.now, []
    for _ in range(5):
        begun = now()
        loss, grads = gradient(params, X)
        float(loss)
        asked.append((begun, now()))
        params, state = update(params, state, grads)
    assert seen.steps == list(range(5))
    told = [event.time for event in seen.of(Kind.STEP)]
    assert all(begun <= at <= read for at, (begun, read) in zip(told, asked, strict=True))


def test_a_failing_step_raises_the_hosts_own_error(seen: Observation) -> None:
    step, state = jax.jit(linen_step()), linen_state()
    with pytest.raises(TypeError, match="sub got incompatible shapes"):
        step(state, X, jnp.ones((7, 2)))
    step(state, X, Y)
    assert seen.steps == [0]


@pytest.mark.parametrize("donate", [(), (0,)])
def test_a_resumed_state_gives_the_first_number(seen: Observation, donate: tuple[int, ...]) -> None:
    step = jax.jit(linen_step(), donate_argnums=donate)
    state = linen_state().replace(step=jnp.array(1000))
    for _ in range(3):
        state, _ = step(state, X, Y)
    assert seen.steps == [1000, 1001, 1002]
    assert int(state.step) == 1003


def test_a_replicated_state_gives_the_first_number(seen: Observation) -> None:
    step = jax.pmap(linen_step())
    state = jax_utils.replicate(linen_state().replace(step=jnp.array(77)))
    devices = jax.local_device_count()
    for _ in range(2):
        state, _ = step(state, jnp.stack([X] * devices), jnp.stack([Y] * devices))
    assert seen.steps == [77, 78]


def test_the_count_of_an_optax_state_gives_the_first_number(seen: Observation) -> None:
    tx, params = optax.adam(1e-3), weights()
    first = tx.init(params)
    state = (first[0]._replace(count=jnp.array(9, jnp.int32)), *first[1:])
    step = jax.jit(optax_step(tx), donate_argnums=(0, 1))
    for _ in range(2):
        params, state = step(params, state, X)
    assert seen.steps == [9, 10]


def test_a_further_loop_of_the_process_is_numbered_by_what_its_own_first_call_is_given() -> None:
    tx, params = optax.adam(1e-3), weights()
    first = tx.init(params)
    step = jax.jit(optax_step(tx))
    for count in (9, 30):
        state = (first[0]._replace(count=jnp.array(count, jnp.int32)), *first[1:])
        with observed((jax, install_jax), (optax, install_optax)) as seen:
            again = jax.jit(step.__wrapped__)  # not traced again
            for _ in range(2):
                params, state = again(params, state, X)
            assert seen.steps == [count, count + 1]


def test_an_nnx_optimizer_gives_the_first_number(seen: Observation) -> None:
    model = NnxNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    other = nnx.Optimizer(NnxNet(nnx.Rngs(0)), optax.adam(1e-2), wrt=nnx.Param)
    optimizer.step[...] = jnp.uint32(42)

    @nnx.jit
    def train_step(model: Any, optimizer: Any, x: Any) -> None:
        optimizer.update(model, nnx.grad(lambda model: (model(x) ** 2).mean())(model))

    for _ in range(2):
        train_step(model, optimizer, X)
    assert seen.steps == [42, 43]
    assert int(other.step[...]) == 0


def test_a_number_that_nothing_tells_stays_unknown(seen: Observation) -> None:
    tx, params = optax.sgd(1e-3), weights()
    state = tx.init(params)
    step = jax.jit(optax_step(tx))
    for _ in range(2):
        params, state = step(params, state, X)
    assert seen.steps == [None, None]


def test_a_batch_of_time_steps_is_no_step_number(seen: Observation) -> None:
    tx, params = optax.sgd(1e-3), weights()
    state = tx.init(params)

    @jax.jit
    def step(params: Any, state: Any, batch: Any) -> Any:
        return optax_step(tx)(params, state, batch["x"] * batch["step"][:, None])

    step(params, state, {"x": X, "step": jnp.arange(4)})
    assert seen.steps == [None]


def test_calls_under_the_hosts_own_tracing_are_no_steps(seen: Observation) -> None:
    tx, params = optax.adam(1e-3), weights()
    state = tx.init(params)
    step = jax.jit(optax_step(tx))
    jax.vmap(lambda x: step(params, state, x))(jnp.ones((2, 4, 8)))
    jax.eval_shape(step, params, state, X)
    assert seen.steps == []
    step(params, state, X)
    assert seen.steps == [0]
