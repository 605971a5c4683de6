"""The hooks change nothing for the host: not a result, not a program, not the way a jitted function behaves."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import flax.linen
import flax.nnx
import flax.training.train_state
import jax
import jax.export
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax._src import distributed, monitoring, source_info_util, traceback_util, xla_bridge
from observing import ARMED, armed, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.core.patching import Hooks
from goodput_plugins.flax.install import install_linen, install_nnx, install_train_state
from goodput_plugins.jax.install import install_jax, install_optax

INSTALLS = (
    (jax, install_jax),
    (optax, install_optax),
    (flax.linen, install_linen),
    (flax.training.train_state, install_train_state),
    (flax.nnx, install_nnx),
)
X = jnp.ones((4,))


def base(x: Any, n: int = 1) -> Any:
    """A function."""
    return x * n + 1


def donated(jit: Any) -> Any:
    y = jnp.ones(4)
    jit(base, donate_argnums=0)(y)
    return y.is_deleted()


def as_methods(jit: Any) -> list[float]:
    class Methods:
        @functools.partial(jit, static_argnums=0)
        def bound(self, x: Any) -> Any:
            return x + 1

        @staticmethod
        @jit
        def static(x: Any) -> Any:
            return x + 2

        @classmethod
        @functools.partial(jit, static_argnums=0)
        def of_class(cls, x: Any) -> Any:
            return x + 3

    methods = Methods()
    assert Methods.bound(methods, X)[0] == 2
    return [float(f(X)[0]) for f in (methods.bound, Methods.static, methods.of_class, Methods.of_class)]


def with_custom_vjp(f: Any) -> float:
    g = jax.custom_vjp(lambda x: f(x))
    g.defvjp(lambda x: (f(x), None), lambda residual, cotangent: (cotangent,))
    return float(jax.grad(lambda y: g(y).sum())(X)[0])


def in_shard_map(f: Any) -> Any:
    spec = jax.sharding.PartitionSpec()
    return jax.jit(jax.shard_map(f, mesh=jax.make_mesh((1,), ("i",)), in_specs=spec, out_specs=spec))(X).shape


def set_attribute(f: Any) -> int:
    f.noted = 3
    return f.noted


def with_a_wrapper(f: Any) -> list[str]:
    @functools.wraps(f)
    def wrapper(x: Any) -> Any:
        return f(x)

    return sorted(vars(wrapper))


def missing(f: Any) -> str:
    with pytest.raises(AttributeError) as error:
        f.no_such_thing  # noqa: B018
    return str(error.value)


def by_global_name(f: Any) -> Any:
    globals()["pickled"] = f
    try:
        return pickle.loads(pickle.dumps(f))(X).shape
    finally:
        del globals()["pickled"]


BEHAVIOUR: dict[str, Callable[[Any], Any]] = {
    "call": lambda f: f(X).tolist(),
    "keywords": lambda f: f(x=X, n=3).tolist(),
    "isinstance of its class": lambda f: isinstance(f, type(jax._src.api.jit(base))),
    "__class__": lambda f: f.__class__,
    "isinstance of Wrapped": lambda f: isinstance(f, jax.stages.Wrapped),
    "callable": callable,
    "lower, compile, call": lambda f: f.lower(X).compile()(X).tolist(),
    "lowered text": lambda f: f.lower(X).as_text(),
    "trace": lambda f: str(f.trace(X).jaxpr),
    "eval_shape": lambda f: f.eval_shape(X).shape,
    "clear_cache": lambda f: f.clear_cache(),
    "_cache_size": lambda f: (f(X), f._cache_size())[1],
    "jit of jit": lambda f: jax.jit(f)(X).tolist(),
    "jaxpr of jit of jit": lambda f: str(jax.jit(f).trace(X).jaxpr),
    "grad": lambda f: jax.grad(lambda y: f(y).sum())(X).tolist(),
    "value_and_grad of jit": lambda f: float(jax.value_and_grad(jax.jit(lambda y: f(y).sum()))(X)[0]),
    "vmap": lambda f: jax.vmap(f)(jnp.ones((3, 4))).shape,
    "jvp": lambda f: jax.jvp(f, (X,), (X,))[1].tolist(),
    "checkpoint": lambda f: jax.checkpoint(f)(X).tolist(),
    "scan": lambda f: jax.lax.scan(lambda carry, _: (f(carry), carry.sum()), X, None, length=3)[0].tolist(),
    "cond": lambda f: jax.lax.cond(True, f, f, X).tolist(),
    "custom_vjp": with_custom_vjp,
    "make_jaxpr": lambda f: str(jax.make_jaxpr(f)(X)),
    "jax.eval_shape": lambda f: jax.eval_shape(f, X).shape,
    "linearize": lambda f: jax.linearize(f, X)[0].tolist(),
    "export": lambda f: jax.export.export(f)(X).fun_name,
    "partial": lambda f: functools.partial(f, n=2)(X).tolist(),
    "name": lambda f: (f.__name__, f.__qualname__, f.__module__, f.__doc__),
    "__wrapped__": lambda f: f.__wrapped__ is base,
    "inspect.unwrap": lambda f: inspect.unwrap(f) is base,
    "signature": lambda f: str(inspect.signature(f)),
    "vars": lambda f: sorted(vars(f)),
    "functools.wraps": with_a_wrapper,
    "inspect": lambda f: (inspect.isfunction(f), inspect.isroutine(f), inspect.ismethod(f)),
    "repr": lambda f: repr(f).split(" at ")[0],
    "missing attribute": missing,
    "hash and equality": lambda f: ({f: 1}[f], f == f, f in {f}, f == base),
    "weakref": lambda f: weakref.ref(f)() is f,
    "bound": lambda f: type(f.__get__(X)),
    "pickle": by_global_name,
    "cloudpickle": lambda f: cloudpickle.loads(cloudpickle.dumps(f))(X).tolist(),
    "copy": lambda f: (copy.copy(f)(X).tolist(), copy.copy(f).__name__),
    "deepcopy": lambda f: (copy.deepcopy(f)(X).tolist(), copy.deepcopy({"f": f})["f"].__name__),
    "set attribute": set_attribute,
    "static argument": lambda f: jax.jit(lambda g, x: g(x), static_argnums=0)(f, X).tolist(),
    "shard_map": in_shard_map,
    "disable_jit": lambda f: _eagerly(f),
}
MAKING: dict[str, Callable[[Any], Any]] = {
    "static_argnames": lambda jit: jit(base, static_argnames="n")(X, n=3).tolist(),
    "decorator with arguments": lambda jit: jit(static_argnames="n")(base)(X, n=3).tolist(),
    "donate": donated,
    "methods": as_methods,
    "partial function": lambda jit: jit(functools.partial(base, n=4))(X).tolist(),
    "unhashable callable": lambda jit: jit(Unhashable())(X).tolist(),
    "signature of jit": lambda jit: str(inspect.signature(jit)),
    "linen": lambda jit: flax.linen.jit(flax.linen.Dense)(3).init(jax.random.key(0), X)["params"]["kernel"].shape,
    "nnx lower": lambda jit: type(flax.nnx.jit(base).lower(X)).__name__,
    "error": lambda jit: _error_of(lambda: jit(base)("text")),
    "not a function": lambda jit: _error_of(lambda: jit(3)),
}


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x + 5


def _eagerly(f: Any) -> Any:
    with jax.disable_jit():
        return f(X).tolist()


def _error_of(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(Exception) as error:
        call()
    return type(error.value).__name__, str(error.value)


def answers(checks: dict[str, Callable[[Any], Any]], subject: Callable[[], Any]) -> dict[str, Any]:
    return {name: _answer(check, subject()) for name, check in checks.items()}


def _answer(check: Callable[[Any], Any], subject: Any) -> Any:
    """What it answers; what cannot be done without the hooks is refused in the same words with them."""
    try:
        return check(subject)
    except Exception as error:
        return type(error), str(error)


def test_a_jitted_function_behaves_as_it_does_without_the_hooks() -> None:
    plain = answers(BEHAVIOUR, lambda: jax.jit(base)), answers(MAKING, lambda: jax.jit)
    with observed(*INSTALLS):
        assert type(jax.jit(base)).__name__ == "Jitted"
        hooked = answers(BEHAVIOUR, lambda: jax.jit(base)), answers(MAKING, lambda: jax.jit)
    assert hooked == plain


def test_a_pmapped_function_behaves_as_it_does_without_the_hooks() -> None:
    shards = jnp.ones((jax.local_device_count(), 4))
    checks: dict[str, Callable[[Any], Any]] = {
        "call": lambda f: f(shards).tolist(),
        "lower": lambda f: f.lower(shards).compile()(shards).tolist(),
        "functions": lambda f: (inspect.isfunction(f), hasattr(f, "trace"), isinstance(f, jax.stages.Wrapped)),
        "name": lambda f: (f.__name__, f.__qualname__, f.__module__, f.__doc__),
        "deepcopy": lambda f: copy.deepcopy(f) is f,
        "signature": lambda f: str(inspect.signature(f)),
    }
    plain = answers(checks, lambda: jax.pmap(base))
    with observed(*INSTALLS):
        assert answers(checks, lambda: jax.pmap(base)) == plain


def trained() -> bytes:
    """The parameters of a small model after 20 steps."""
    tx = optax.adam(1e-2)
    x = jax.random.normal(jax.random.key(0), (16, 8))
    model = flax.linen.Dense(3)
    state = flax.training.train_state.TrainState.create(
        apply_fn=model.apply, params=model.init(jax.random.key(1), x)["params"], tx=tx
    )

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: (state.apply_fn({"params": p}, x) ** 2).mean())(state.params)
        return state.apply_gradients(grads=grads), loss

    for _ in range(20):
        state, _ = step(state, x)
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))


@functools.cache
def plainly(loop: Callable[[], Any]) -> Any:
    """What a loop computes without us."""
    return loop()


def test_results_are_equal_to_the_bit() -> None:
    plain = plainly(trained)
    with observed(*INSTALLS) as seen:
        assert trained() == plain
        assert len(seen.steps) == 20


LOWERED = """
import sys
import jax, jax.numpy as jnp, optax
jax.config.update("jax_compilation_cache_dir", sys.argv[-1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
tx = optax.adam(1e-3)
@jax.jit
def inner(params, x):
    return ((x @ params) ** 2).mean()
def step(params, state, x):
    loss, grads = jax.value_and_grad(inner)(params, x)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss
step = jax.jit(step, donate_argnums=(0, 1))
params, x = jnp.ones((8, 1)), jnp.ones((4, 8))
state = tx.init(params)
print(step.lower(params, state, x).as_text(debug_info=True))
step(params, state, x)
"""


def test_programs_and_their_cache_keys_are_the_same(tmp_path: Path) -> None:
    script, arming, cache = tmp_path / "train.py", tmp_path / "arming.py", tmp_path / "cache"
    script.write_text(LOWERED)
    arming.write_text(ARMED.format(tests=str(Path(__file__).parent)))
    run = f"import runpy, sys; [runpy.run_path(path) for path in sys.argv[1].split()]; runpy.run_path({str(script)!r})"
    texts, keys = [], []
    for first in ("", str(arming)):
        done = subprocess.run(
            [sys.executable, "-c", run, first, str(cache)],
            env={"PYTHONPATH": ":".join([str(Path(__file__).parents[1]), *sys.path]), "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        texts.append(done.stdout)
        keys.append({path.name for path in cache.iterdir() if path.name.endswith("-cache")})
        shutil.rmtree(cache)
    assert texts[0] == texts[1]
    assert any(key.startswith("jit_step-") for key in keys[0])
    assert keys[0] == keys[1]


def everything_patched() -> list[Any]:
    listeners = (
        monitoring._scalar_listeners,
        monitoring._event_duration_secs_listeners,
        monitoring._event_listeners,
    )
    excluded = (traceback_util._exclude_paths, source_info_util._exclude_paths)
    owners = (
        jax,
        jax.lax,
        jax.stages.Traced,
        jax.stages.Lowered,
        jax.stages.Compiled,
        jax.profiler.StepTraceAnnotation,
        xla_bridge,
        distributed.State,
        optax,
        optax.MultiSteps,
        sys.modules["optax._src.update"],
        flax.linen.Module,
        flax.training.train_state.TrainState,
        flax.nnx,
        flax.nnx.Optimizer,
        type(flax.nnx.Module),
    )
    return [list(entries) for entries in (*listeners, *excluded)] + [
        {name: value for name, value in vars(owner).items() if callable(value) or isinstance(value, classmethod)}
        for owner in owners
    ]


def test_uninstalling_restores_everything() -> None:
    before = everything_patched()
    with observed(*INSTALLS) as seen:
        assert everything_patched() != before
        step = jax.jit(lambda p: (optax.apply_updates(p, p), p.sum()))
        step(X)
    assert everything_patched() == before
    told = len(seen.steps)
    step(X)
    assert len(seen.steps) == told


def train() -> float:
    """A loop that enters every hook which a process can enter more than once."""
    model = flax.linen.Dense(1)
    x = jnp.ones((4, 8))
    state = flax.training.train_state.TrainState.create(
        apply_fn=model.apply, params=model.init(jax.random.key(0), x)["params"], tx=optax.adam(1e-2)
    )
    jax.make_mesh((1,), ("x",))

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: (state.apply_fn({"params": p}, x) ** 2).mean())(state.params)
        return state.apply_gradients(grads=grads), loss

    compiled = step.lower(state, x).compile()
    for i in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            state, loss = step(state, x)
    state, loss = compiled(state, x)
    optimizer = flax.nnx.Optimizer(flax.nnx.Linear(2, 2, rngs=flax.nnx.Rngs(0)), optax.adam(1e-2), wrt=flax.nnx.Param)
    assert int(optimizer.step[...]) == 0
    return float(loss)


@pytest.mark.parametrize("method", ["begin", "finish", "span", "step", "device_done", "now"])
def test_training_goes_on_when_a_recorder_fails(
    method: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("a fault of ours")

    plain = plainly(train)
    with observed(*INSTALLS, errors_are_raised=False) as seen:
        monkeypatch.setattr(seen.hooks.recorder, method, fails)
        assert train() == plain
        # The adapters' method `span` is not entered by this loop: its fault shows where a program is cached.
        assert seen.hooks.guard.on == (method == "span")
    assert capsys.readouterr().err.count("failed and is off from here on") == (0 if method == "span" else 1)


def hand_written() -> float:
    sgd = jax.jit(lambda p: jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(lambda p: (p["w"] ** 2).sum())(p)))
    params = sgd({"w": X})
    return float(sgd(params)["w"].sum())


def nnx_trained() -> int:
    model = flax.nnx.Linear(2, 2, rngs=flax.nnx.Rngs(0))
    optimizer = flax.nnx.Optimizer(model, optax.adam(1e-2), wrt=flax.nnx.Param)

    @flax.nnx.jit
    def step(model: Any, optimizer: Any) -> None:
        optimizer.update(model, flax.nnx.grad(lambda model: (model(jnp.ones((1, 2))) ** 2).mean())(model))

    step(model, optimizer)
    return int(optimizer.step[...])


def scanned_and_evaluated() -> float:
    tx, params = optax.MultiSteps(optax.adam(1e-2), 2), jnp.ones((2,))
    state = flax.nnx.merge(*flax.nnx.split(flax.nnx.Linear(2, 2, rngs=flax.nnx.Rngs(0))))

    def one(carry: Any, _: None) -> Any:
        params, state = carry
        updates, state = tx.update(jax.grad(lambda p: (p**2).sum())(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    step = jax.jit(lambda carry: jax.lax.scan(one, carry, None, length=3)[0])

    @jax.jit
    def eval_step(params: Any) -> Any:
        return params.sum()

    carry = params, tx.init(params)
    for _ in range(2):
        carry = step(carry)
        total = eval_step(carry[0])
    return float(total + state.kernel[...].sum())


ENTRIES: dict[Callable[[], Any], list[str]] = {
    hand_written: [
        "jax.loop.Loop._begins",
        "jax.loop.Loop.ends",
        "jax.sequence.counter_among",
        "jax.candidates.carried",
        "jax.candidates.twins",
        "jax.accumulation.Gradients.taken",
        "jax.accumulation.Gradients.clear",
        "jax.device.DeviceWatch.watch_part",
        "jax.device.DeviceWatch.look_at_part",
        "jax.sequence.Sequence.step",
        "jax.jitted.jitted_function",
        "jax.outputs.SmallOutput.pick",
        "jax.programs.Programs.begins",
        "jax.programs.Programs.ends",
    ],
    scanned_and_evaluated: [
        "jax.loop.learn",
        "jax.scans._scan_begins",
        "jax.scans._ends",
        "jax.evaluation.Evaluations.begins",
        "jax.evaluation.Evaluations.ends",
        "jax.evaluation.Evaluations.over",
        "flax.nnx.OptimizerNumbers._merged",
    ],
    train: [
        "jax.loop.Loop.annotation_begins",
        "jax.loop.Loop.annotation_ends",
        "jax.jitted.remember_stage",
        "jax.jitted.stage_function",
    ],
    nnx_trained: ["flax.nnx.whole_number", "flax.nnx.OptimizerNumbers._constructed"],
    trained: [
        "jax.loop.Loop._goes_on",
        "jax.sequence.Sequence.goes_on",
        "jax.steady._picker",
        "jax.steady.Steady._ends",
        "core.recorder.Recorder.step",
    ],
}
"""For each loop the functions of ours that are tried with it: it enters them."""


@pytest.mark.parametrize(("loop", "entry"), [(loop, entry) for loop, names in ENTRIES.items() for entry in names])
def test_training_goes_on_when_an_entry_point_fails(
    loop: Callable[[], Any], entry: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a fault of ours")

    plain = plainly(loop)
    monkeypatch.setattr(f"goodput_plugins.{entry}", fails)
    with observed(*INSTALLS, errors_are_raised=False) as seen:
        assert loop() == plain
        assert not seen.hooks.guard.on
    assert capsys.readouterr().err.count("failed and is off from here on") == 1


def test_what_a_failed_hook_leaves_behind_changes_no_later_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as failing:
        failing.setattr("goodput_plugins.jax.scans._ends", fails)
        with observed(*INSTALLS, errors_are_raised=False) as seen:
            scanned_and_evaluated()
            assert not seen.hooks.guard.on
    with observed(*INSTALLS) as seen:
        train()
    assert seen.steps == [0, 1, 2, 3]


def test_hooks_that_are_installed_twice_for_one_recorder_count_once_until_the_first_go() -> None:
    with observed(*INSTALLS) as seen:
        again = Hooks(seen.hooks.recorder, seen.hooks.guard)
        for module, install in INSTALLS:
            install(module, again)
        assert not again.patches.places
        for i in range(2):
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                jnp.ones(3).sum()
        assert seen.steps == [0, 1]
        scanned_and_evaluated()
        assert seen.steps == [0, 1, 2, 4]  # two and one in two calls
        assert len(seen.of(Kind.BEGIN, Activity.CUSTOM, "EVAL")) == 2
        assert len(seen.of(Kind.BEGIN, Activity.COMPILE, "jit(eval_step)")) == 1
        seen.hooks.uninstall()
        for module, install in INSTALLS:
            install(module, again)
        train()
        assert seen.steps == [0, 1, 2, 4, 0, 1, 2, 3]
        again.uninstall()


@pytest.mark.parametrize("method", ["begin", "finish", "rank"])
def test_devices_come_up_when_a_recorder_fails(method: str) -> None:
    done = armed(
        f"""
def fails(*args, **kwargs):
    raise OSError("a fault of ours")
seen.hooks.recorder.{method} = fails
print(len(jax.devices()) > 0)
print(seen.hooks.guard.on)
""",
        JAX_PLATFORMS="cpu",
    )
    assert done.stdout.split() == ["True", "False"]
    assert done.stderr.count("failed and is off from here on") == 1
    assert done.returncode == 0


@pytest.mark.parametrize(
    "entry",
    [
        "watching.Watching._wait",
        "device.DeviceWatch._look",
        "device.DeviceWatch.watch",
        "watching.Watching._evaluated",
        "device.DeviceWatch.watch_other",
    ],
)
def test_device_time_failing_is_said_once(
    entry: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("a fault of ours")

    monkeypatch.setattr(f"goodput_plugins.jax.{entry}", fails)
    with observed(*INSTALLS, errors_are_raised=False) as seen:

        @jax.jit
        def step(params: Any, x: Any) -> Any:
            return optax.apply_updates(params, params), jnp.tanh(x @ x).sum()

        @jax.jit
        def eval_step(x: Any) -> Any:
            return jnp.tanh(x @ x).sum()

        @jax.jit
        def other(x: Any) -> Any:
            return jnp.tanh(x @ x).sum()

        x = jnp.ones((1500, 1500))
        for _ in range(3):
            params, loss = step(jnp.ones(3), x)
            seen.hooks.recorder.begin(Activity.DATA)
        eval_step(x)
        step(jnp.ones(3), x)
        other(x)
        jax.block_until_ready((params, loss))
        seen.hooks.uninstall()
    assert capsys.readouterr().err.count("failed and is off from here on") == 1
