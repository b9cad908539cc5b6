"""Products of one tile: those of each query head with its key head.

Letters: see `jaxattn._typing`; t and s are the sizes of the tile, G = N / K, and `*b` are the batch
axes of a step (none where examples are looped over). The G heads of a group share their key head
as more rows of one product.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn._mesh import regroup
from jaxattn._typing import Array, Float, Precision
from jaxattn.steps import Step


def score_products(query: Array, key: Array, step: Step, wide: jnp.dtype) -> Array:
    """`Q K` of one tile: `[*b, N, t, H], [*b, K, H, s] -> [*b, N, t, s]`."""
    scores = matmul(in_groups(query, key), without_one(key), step.inputs.precision, -2, wide)
    return regroup(scores, (*query.shape[:-1], key.shape[-1]))


def products(weights: Array, value: Array, step: Step) -> Array:
    """`A Vᵀ` of one tile: `[*b, N, t, s], [*b, K, Hv, s] -> [*b, N, t, Hv]`."""
    value = value.astype(weights.dtype)
    summed = matmul(in_groups(weights, value), without_one(value), step.inputs.precision, -1)
    return regroup(summed, (*weights.shape[:-1], value.shape[-2]))


def split_products(weights: Array, value: Array, step: Step) -> tuple[Array, Array]:
    """`products`, and zeros `[*b, K, Hv, G·t]` that move in its place where the value moves.

    The second is to be summed over tiles, and then turned and added: see `split_product`.
    """
    value = value.astype(weights.dtype)
    left, right = in_groups(weights, value), without_one(value)
    summed, turned = split_product(left, right, step.inputs.precision)
    return (
        regroup(summed, (*weights.shape[:-1], value.shape[-2])),
        regroup(turned, (*value.shape[:-1], turned.shape[-1])),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def split_product(
    weights: Float[Array, "*l r s"], value: Float[Array, "*l Hv s"], precision: Precision
) -> tuple[Float[Array, "*l r Hv"], Float[Array, "*l Hv r"]]:
    """`A Vᵀ` and 0, with derivatives `dA Vᵀ` and `dV Aᵀ`: both halves of the product rule.

    With the second laid out as V, its cotangent comes as `gᵀ`, which is turned once for all tiles
    of a block of queries, and `gᵀ A` contracts the rows as they lie in memory.
    """
    summed = matmul(weights, value, precision, -1)
    return summed, jnp.zeros_like(jnp.swapaxes(summed, -1, -2))


@functools.partial(split_product.defjvp, symbolic_zeros=True)
def split_product_jvp(precision: Precision, primals: Any, tangents: Any) -> Any:
    """What does not move costs nothing."""
    weights, value = primals
    found = summed, turned = split_product(weights, value, precision)
    still = [isinstance(move, jax.custom_derivatives.SymbolicZero) for move in tangents]
    backwards: Any = precision[::-1] if isinstance(precision, tuple) else precision
    moved = jnp.zeros_like(summed) if still[0] else matmul(tangents[0], value, precision, -1)
    turned = jnp.zeros_like(turned) if still[1] else matmul(tangents[1], weights, backwards, -1)
    return found, (moved, turned)


def turned_like(summed: Array, groups: int) -> Array:
    """Zeros for the second of `split_products`: `[*b, N, t, Hv]` in groups and turned."""
    *batch, heads, rows, features = summed.shape
    zeros = regroup(jnp.zeros_like(summed), (*batch, groups, heads // groups * rows, features))
    return jnp.swapaxes(zeros, -1, -2)


def turned_back(turned: Array, like: Array) -> Array:
    """`[*b, K, Hv, G·t]` as `[*b, N, t, Hv]`, like another array."""
    # Without a barrier XLA would turn no array, and contract the other way about.
    return regroup(jnp.swapaxes(jax.lax.optimization_barrier(turned), -1, -2), like.shape)


def in_groups(x: Array, key: Array) -> Array:
    """`[*b, N, t, .]` as `[*b, K, G·t, .]`, without leading ones."""
    *batch, heads, rows, features = x.shape
    groups = key.shape[-3]
    lead = () if groups == 1 and not batch else (*batch, groups)
    return regroup(x, (*lead, heads // groups * rows, features))


def without_one(key: Array) -> Array:
    """`[*b, K, ., .]`, without leading ones."""
    return key.reshape(key.shape[-2:]) if key.shape[:-2] == (1,) else key


def matmul(
    left: Array, right: Array, precision: Precision, over: int, wide: jnp.dtype | None = None
) -> Array:
    """The product over the last axis of the left and axis `over` of the right, batched."""
    lead = tuple(range(left.ndim - 2))
    axes = ((left.ndim - 1,), (right.ndim + over,)), (lead, lead)
    wide = left.dtype if wide is None else wide
    return jax.lax.dot_general(left, right, axes, precision=precision, preferred_element_type=wide)
