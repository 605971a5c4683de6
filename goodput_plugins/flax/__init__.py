"""Flax: model and optimizer construction, and which functions apply an update.

The switch installs this plugin when the script imports ``flax.linen``, ``flax.training.train_state`` or
``flax.nnx``. It sees:

- **preparation**: ``Module.init``, ``TrainState.create``, the construction of nnx modules and optimizers,
  each with its name; outermost only. Under ``jax.jit`` the call of the jitted function is the preparation;
- **steps**: ``TrainState.apply_gradients`` and ``nnx.Optimizer.update`` make the jitted function that calls
  them a training step; called outside any jitted function each is a step itself;
- **the step number** of an ``nnx.Optimizer``, whose name is lost on the way into ``jax.jit``.

It builds on the ``jax`` plugin, which tells the steps.
"""
