"""Arrays on a mesh: all operands are brought onto the same axes before loops carry them.

Inside `shard_map` a loop's carry varies over every mesh axis that any operand varies over. On a
mesh with explicit axes, batch and heads may be sharded; then they are batched, never looped over.
"""

import dataclasses
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jaxattn._door import Inputs
from jaxattn._typing import Array


def varying_axes(x: Array) -> frozenset[str]:
    """The manual mesh axes over which x differs from device to device."""
    return frozenset(jax.typeof(x).manual_axis_type.varying)


def partition(x: Array) -> tuple[Any, ...]:
    """The explicit mesh axis of each axis of x, None where it is whole."""
    spec = tuple(jax.typeof(x).sharding.spec)
    return spec + (None,) * (x.ndim - len(spec))


def regroup(x: Array, shape: tuple[int, ...]) -> Array:
    """`[*b, N, t, F]` in another shape of as many axes, sharded over `*b` and heads as before."""
    if not any(partition(x)):
        return x.reshape(shape)
    heads = len(shape) - 3
    spec = PartitionSpec(*partition(x)[: heads + 1], *(None,) * 2)
    sharding = jax.sharding.NamedSharding(jax.typeof(x).sharding.mesh, spec)
    return jax.lax.reshape(x, shape, out_sharding=sharding)


def is_sharded(inputs: Inputs) -> bool:
    """Whether query, key or value is sharded over explicit axes."""
    return any(any(partition(x)) for x in (inputs.query, inputs.key, inputs.value))


def sharded_tokens(inputs: Inputs) -> str | None:
    """Why sharded tokens or features cannot be served, or None."""
    for name, letter in (("query", "T"), ("key", "S"), ("value", "S")):
        spec = partition(getattr(inputs, name))
        if spec[-3] is not None or spec[-1] is not None:
            return (
                f"{name} is sharded over tokens ({letter}) or features as {spec}; a device needs "
                "all of them: reshard it, or see jaxattn.sharded for attention across devices"
            )
    return None


def on_one_mesh(inputs: Inputs) -> Inputs:
    """Inputs that vary over the same manual axes, with batch and heads sharded alike."""
    inputs = varying_alike(inputs)
    if not is_sharded(inputs):
        return inputs
    operands = {name: getattr(inputs, name) for name in ("query", "key", "value")}
    specs = zip(*map(partition, operands.values()), strict=True)
    common = PartitionSpec(*(next(filter(None, axis), None) for axis in specs))
    moved = {name: jax.sharding.reshard(x, common) for name, x in operands.items()}
    return dataclasses.replace(inputs, **moved)


def varying_alike(tree: Any) -> Any:
    """The same arrays, each varying over all manual axes that any of them varies over."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    axes = frozenset[str]().union(*map(varying_axes, leaves))
    return structure.unflatten([_vary(x, axes - varying_axes(x)) for x in leaves])


def _vary(x: Array, axes: frozenset[str]) -> Array:
    return jax.lax.pcast(x, tuple(sorted(axes)), to="varying") if axes else x
