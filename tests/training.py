"""Small real training loops, one for each plugin; each returns what it has computed, to the last bit."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch_xla") is not None:  # its runtime has to be there before PyTorch differentiates
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    importlib.import_module("torch_xla").device()


def digest(values: Any) -> str:
    """The bits of every array in a tree."""
    import jax
    import numpy as np

    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(values))).hexdigest()


def with_jax(folder: Path) -> str:
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def train_step(params: Any, state: Any, x: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda p: ((x @ p) ** 2).mean())(params)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, loss

    x = jax.random.normal(jax.random.key(0), (16, 8))
    params = jnp.ones(8)
    state = optimizer.init(params)
    for number in range(4):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, state, loss = train_step(params, state, x)
    with contextlib.suppress(TypeError):
        train_step(params, state, "no array")
    compiled = train_step.lower(params, state, x).compile()
    return digest([compiled(params, state, x), loss, train_step.eval_shape(params, state, x)[2].shape])


def with_flax(folder: Path) -> str:
    import flax.linen
    import flax.nnx
    import jax
    import optax
    from flax.training.train_state import TrainState

    x = jax.random.normal(jax.random.key(0), (4, 3))
    model = flax.linen.Dense(2)
    variables = model.init(jax.random.key(1), x)
    train = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.sgd(0.1))

    @jax.jit
    def train_step(train: Any) -> Any:
        gradients = jax.grad(lambda p: (train.apply_fn({"params": p}, x) ** 2).mean())(train.params)
        return train.apply_gradients(grads=gradients)

    for _ in range(3):
        train = train_step(train)

    linear = flax.nnx.Linear(3, 2, rngs=flax.nnx.Rngs(0))
    optimizer = flax.nnx.Optimizer(linear, optax.sgd(0.1), wrt=flax.nnx.Param)

    @flax.nnx.jit
    def nnx_step(linear: Any, optimizer: Any) -> None:
        optimizer.update(linear, flax.nnx.grad(lambda model: (model(x) ** 2).mean())(linear))

    for _ in range(2):
        nnx_step(linear, optimizer)
    return digest([train.params, flax.nnx.state(linear)])


def with_orbax(folder: Path) -> str:
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    state = {"w": jnp.arange(6.0)}
    seen: list[Any] = []
    with ocp.CheckpointManager(folder / "managed", options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        for step in range(3):
            seen.append(manager.save(step, args=ocp.args.StandardSave({"w": state["w"] + step})))
        manager.wait_until_finished()
        seen += [manager.all_steps(), manager.restore(None, args=ocp.args.StandardRestore(state))]
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "direct", state)
        checkpointer.wait_until_finished()
        seen.append(checkpointer.restore(folder / "direct"))
    return digest(seen)


def with_torch(folder: Path) -> str:
    import torch

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        model.eval()
        for x, _ in loader:
            model(x)
        model.train()
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"{epoch}.pt")
        with open(folder / "open.pt", "wb") as file:
            torch.save(model.state_dict(), file)
        model.load_state_dict(torch.load(folder / f"{epoch}.pt")["model"])
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def with_lightning(folder: Path) -> str:
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.plugins.io import AsyncCheckpointIO

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("loss", self.training_step(batch, index))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    pl.seed_everything(0, verbose=False)
    data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model = Model()
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    # the callback comes by the entry point, which asks the environment
    armed = {"GOODPUT_PLUGINS": "lightning"} if hasattr(pl.Trainer, "_goodput_watch") else {}
    with unittest.mock.patch.dict(os.environ, armed):
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=folder, num_sanity_val_steps=1, **quiet)
        trainer.fit(model, loader, loader)
        trainer.save_checkpoint(folder / "saved.ckpt")
        quiet["plugins"] = [AsyncCheckpointIO()]
        trainer = pl.Trainer(max_epochs=3, accelerator="cpu", default_root_dir=folder, **quiet)
        trainer.fit(model, loader, loader, ckpt_path=folder / "saved.ckpt")
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def with_torch_xla(folder: Path) -> str:
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl
    import torch_xla.experimental.distributed_checkpoint as xc
    import torch_xla.utils.serialization as serialization

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = torch_xla.device()
    data = torch.utils.data.TensorDataset(torch.randn(12, 4), torch.randn(12, 1))
    loader = pl.MpDeviceLoader(torch.utils.data.DataLoader(data, batch_size=4), device)
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            xm.optimizer_step(optimizer, barrier=number % 2 == 0)
        xm.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"{epoch}.pt")
        model.load_state_dict(torch.load(folder / f"{epoch}.pt")["model"])
    serialization.save(model.state_dict(), str(folder / "whole"))
    model.load_state_dict(serialization.load(str(folder / "whole")))
    with process_group():
        manager = xc.CheckpointManager(str(folder / "managed"), 2, chkpt_on_preemption=False)
        for step in range(3):
            manager.save(step, {"model": model.state_dict()})
        manager.save_async(4, {"model": model.state_dict()})
        manager.join()
        xc.prime_optimizer(optimizer)
        state = {"model": model.state_dict()}
        manager.restore(4, state)
        model.load_state_dict(state["model"])
    return hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """A group of this process alone."""
    import torch

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


LOOPS: dict[str, Callable[[Path], str]] = {
    "jax": with_jax,
    "flax": with_flax,
    "orbax": with_orbax,
    "torch": with_torch,
    "torch_xla": with_torch_xla,
    "lightning": with_lightning,
}
"""For each plugin a loop that enters every hook of it."""
