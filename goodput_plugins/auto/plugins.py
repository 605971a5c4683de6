"""The plugins, as data: what each hooks, which versions it knows, what it can see.

This table feeds the import hooks, the version check, the messages and the docs. It is read at every
interpreter start under the switch, so it imports nothing and names functions and buckets as strings.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Plugin:
    """One adapter.

    Attributes:
        name: as ``GOODPUT_PLUGINS`` and reports spell it.
        distribution: what ``pip install`` calls the library.
        library: the module whose ``__version__`` is the library's.
        also: other libraries that it is for, as ``(library, distribution)``: the same one by another name.
        needs: the plugin that it builds on, which is armed with it.
        since: the oldest version that is tested.
        before: the first version that does not work; None if none is known.
        hooks: for each module whose import triggers it, the function ``install(module, hooks)``.
        sees: the buckets that a report may show once it is armed; what it sees only in a job that turns out
            to train with the library, the plugin tells itself.
    """

    __slots__ = ("also", "before", "distribution", "hooks", "library", "name", "needs", "sees", "since")

    def __init__(
        self,
        name: str,
        *,
        distribution: str,
        library: str,
        since: str,
        before: str | None = None,
        hooks: Mapping[str, str],
        sees: tuple[str, ...],
        also: tuple[tuple[str, str], ...] = (),
        needs: str | None = None,
    ) -> None:
        self.name = name
        self.distribution = distribution
        self.library = library
        self.since = since
        self.before = before
        self.hooks = hooks
        self.sees = sees
        self.also = also
        self.needs = needs

    def works_with(self, version: str) -> bool:
        """Whether a version of the library is one that it knows."""
        found = _release(version)
        return _release(self.since) <= found and (self.before is None or found < _release(self.before))

    @property
    def requirement(self) -> str:
        """What to hand to ``pip install``."""
        return f"{self.distribution}>={self.since}" + (f",<{self.before}" if self.before else "")


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.13.0+cpu`` is ``(2, 13, 0)``."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


TABLE = (
    Plugin(
        "jax",
        distribution="jax",
        library="jax",
        since="0.10",
        hooks={
            "jax": "goodput_plugins.jax.install:install_jax",
            "jax.experimental.pjit": "goodput_plugins.jax.install:install_pjit",
            "jax.experimental.mesh_utils": "goodput_plugins.jax.install:install_mesh_utils",
            "jax.experimental.multihost_utils": "goodput_plugins.jax.install:install_multihost_utils",
            "optax": "goodput_plugins.jax.install:install_optax",
            "equinox": "goodput_plugins.jax.install:install_equinox",
        },
        sees=("TPU_INITIALIZATION", "PROGRAM_STARTUP", "TRAINING_PREP", "CUSTOM_BADPUT_EVENTS"),
    ),
    Plugin(
        "flax",
        distribution="flax",
        library="flax",
        since="0.12",
        hooks={
            "flax.linen": "goodput_plugins.flax.install:install_linen",
            "flax.training.train_state": "goodput_plugins.flax.install:install_train_state",
            "flax.nnx": "goodput_plugins.flax.install:install_nnx",
        },
        sees=("TRAINING_PREP",),
    ),
    Plugin(
        "orbax",
        distribution="orbax-checkpoint",
        library="orbax.checkpoint",
        since="0.12",
        hooks={"orbax.checkpoint": "goodput_plugins.orbax.install:install_orbax"},
        sees=(
            "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
            "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
            "CHECKPOINT_SAVE_ASYNC",
        ),
    ),
    Plugin(
        "torch",
        distribution="torch",
        library="torch",
        since="2.9",
        hooks={
            "torch": "goodput_plugins.torch.install:install_torch",
            "torch.utils.data": "goodput_plugins.torch.install:install_data",
            "torch._dynamo.callback": "goodput_plugins.torch.install:install_compiler",
            "torch.distributed.checkpoint.logger": "goodput_plugins.torch.install:install_sharded",
            "transformers.trainer": "goodput_plugins.torch.install:install_transformers",
            "accelerate.accelerator": "goodput_plugins.torch.install:install_accelerate",
        },
        sees=("DATA_LOADING_SYNC", "DATA_LOADING_ASYNC"),
    ),
    Plugin(
        "torch_xla",
        distribution="torch_xla",
        library="torch_xla",
        since="2.9",
        needs="torch",
        hooks={
            "torch_xla": "goodput_plugins.torch_xla.install:install_torch_xla",
            "torch_xla.distributed.parallel_loader": "goodput_plugins.torch_xla.install:install_loader",
            "torch_xla.utils.serialization": "goodput_plugins.torch_xla.install:install_serialization",
            "torch_xla.experimental.distributed_checkpoint": (
                "goodput_plugins.torch_xla.install:install_distributed_checkpoint"
            ),
        },
        sees=("TPU_INITIALIZATION", "PROGRAM_STARTUP"),
    ),
    Plugin(
        "lightning",
        distribution="lightning",
        library="lightning",
        also=(("pytorch_lightning", "pytorch-lightning"), ("lightning_fabric", "lightning-fabric")),
        since="2.5",
        hooks={
            "pytorch_lightning": "goodput_plugins.lightning.install:install_lightning",
            "lightning.pytorch": "goodput_plugins.lightning.install:install_lightning",
            "lightning_fabric.fabric": "goodput_plugins.lightning.install:install_fabric",
            "lightning.fabric.fabric": "goodput_plugins.lightning.install:install_fabric",
        },
        sees=("TRAINING_PREP",),
    ),
)

TIMED = (
    "numpy",
    "scipy",
    "pandas",
    "sklearn",
    "matplotlib",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax.checkpoint",
    "haiku",
    "equinox",
    "chex",
    "grain",
    "clu",
    "torch",
    "torchvision",
    "torch_xla",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "transformers",
    "datasets",
    "tensorflow",
    "tensorflow_datasets",
    "tensorboardX",
    "wandb",
)
"""Modules whose import is told as IMPORT: what a training script spends its first seconds on."""
