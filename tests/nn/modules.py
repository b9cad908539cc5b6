"""What the module tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests import calls


def quick(names, *chosen):
    """Parameters for `parametrize`: the chosen ones always, the others among the slow tests."""
    return [
        name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]


def normal(seed, *shape, dtype=jnp.float64):
    """Standard normal numbers from NumPy: nothing is compiled."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def shuffled(make, seed=0):
    """The module that `make` makes, with normal parameters of deviation 0.5, biases included.

    Its own initialisation is never compiled; dropout starts from key 0.
    """
    module = nnx.eval_shape(make)
    state = nnx.state(module, nnx.Param)
    leaves, tree = jax.tree.flatten(state)
    leaves = [0.5 * normal(seed + i, *x.shape, dtype=x.dtype) for i, x in enumerate(leaves)]
    nnx.update(module, jax.tree.unflatten(tree, leaves))
    keys, counts = nnx.state(module, nnx.RngKey), nnx.state(module, nnx.RngCount)
    nnx.update(module, jax.tree.map(lambda x: jnp.full(x.shape, jax.random.key(0)), keys))
    nnx.update(module, jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.uint32), counts))
    return module


def stacked(plain, scanned):
    """Give the scanned stack the parameters of the plain one."""
    states = [nnx.state(block, nnx.Param) for block in plain.blocks]
    nnx.update(scanned.blocks, jax.tree.map(lambda *x: jnp.stack(x), *states))
    nnx.update(scanned.norm, nnx.state(plain.norm, nnx.Param))
    return scanned


def shapes(make):
    """`{path: (shape, dtype)}` of the parameters that `make` would make; nothing is computed."""
    state = nnx.state(nnx.eval_shape(make), nnx.Param)
    return {path: (p.shape, str(p.dtype)) for path, p in nnx.to_flat_state(state)}


@nnx.jit
def call(module, *args, **kwargs):
    """The module's output, compiled as a whole."""
    return module(*args, **kwargs)


def run(function, module, *args, static=(), **kwargs):
    """`function(module, *args, **static, **kwargs)`, compiled quickly; no state of it is kept."""
    graph, state = nnx.split(module)
    return _run(function, tuple(dict(static).items()), graph, state, args, kwargs)


@functools.partial(calls.jit, static_argnums=(0, 1, 2))
def _run(function, static, graph, state, args, kwargs):
    return function(nnx.merge(graph, state), *args, **dict(static), **kwargs)


@nnx.jit
def mapped(module, x, **kwargs):
    """The module's output, example by example along the first axis."""
    return nnx.vmap(lambda module, x: module(x, **kwargs), in_axes=(None, 0))(module, x)
