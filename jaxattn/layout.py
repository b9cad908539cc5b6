"""The layout of all inputs in steps, and of all results out of them.

A step is what one block of queries needs. Letters: see `jaxattn._typing`; t and s are the sizes of
a block. `*b` are the batch axes of a step: `*B` where steps are batched, none where they are looped
over. Looped, a step has the G query heads of one key head.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn._door import Inputs
from jaxattn._precision import accumulator
from jaxattn._typing import Array
from jaxattn.tiles import (
    Plan,
    Visits,
    block_count,
    classify,
    ever_possible,
    pad_axis,
    position_blocks,
    visits,
)


class Index(NamedTuple):
    """Where a step stands: example and key head (`lead`), query block, visits; and its query."""

    lead: Any
    row: Any
    block: Any
    kind: Any
    query: Array


class Layout(NamedTuple):
    """All inputs in steps. `key` and `value` are `[leads, S, .]`, or `[*B, K, S, .]`, in blocks."""

    plan: Plan
    inputs: Inputs
    key: Array
    value: Array
    row_positions: Any
    column_positions: Any
    kinds: tuple[int, ...]
    narrow: bool
    steps: Index


def arrange(plan: Plan, inputs: Inputs) -> Layout:
    """Cut the inputs into steps, and find out which tiles each has to visit."""
    queries, keys, _, key_heads = inputs.sizes
    rank = len(inputs.batch)
    rows = position_blocks(inputs.query_positions, queries, inputs.query_offset, plan.rows, rank)
    columns = position_blocks(inputs.key_positions, keys, 0, plan.columns, rank)
    ever = ever_possible(inputs.mask, rows, columns)
    found = visits(classify(inputs, rows, columns), plan.looped, ever)
    padded = block_count(keys, plan.columns) * plan.columns
    key, value = (pad_axis(heads_first(x), -2, padded) for x in (inputs.key, inputs.value))
    leads = math.prod(inputs.batch) * key_heads if plan.looped else 1
    count = block_count(queries, plan.rows)
    steps = leads * count
    number = np.arange(steps) if isinstance(steps, int) else jnp.arange(steps)
    lead, row = (x.astype(np.int32) for x in (number // count, number % count))
    return Layout(
        plan=plan,
        inputs=inputs,
        key=lead_axis(plan, key),
        value=lead_axis(plan, value),
        row_positions=example_axis(plan, rows.positions),
        column_positions=example_axis(plan, columns.positions),
        kinds=found.kinds,
        narrow=plan.looped and narrow(found),
        steps=Index(
            lead,
            row,
            per_step(found.block, leads, key_heads),
            per_step(found.kind, leads, key_heads),
            steps_of(plan, inputs, scaled_query(plan, inputs)),
        ),
    )


def narrow(found: Visits) -> bool:
    """Whether each step visits neighbours alone, and few: as many keys serve all its visits."""
    block, listed = found.block, found.listed
    if listed is None or not 0 < 2 * block.shape[-1] <= found.count:
        return False
    first = np.minimum(block[..., :1], found.count - block.shape[-1])
    return bool(np.all(~listed | (block - first < block.shape[-1])))


def scaled_query(plan: Plan, inputs: Inputs) -> Array:
    """`σ q_i` where that loses nothing: T·H products in place of T·S; else the query itself.

    What padding holds must not meet σ, whose derivative would be 0 times that.
    """
    if plan.padding or inputs.query.dtype != accumulator(inputs.query.dtype):
        return inputs.query
    return inputs.query * jnp.swapaxes(inputs.scale, -2, -3)


def heads_first(x: Array) -> Array:
    """`[*B, T, N, H] -> [*B, N, T, H]`."""
    return jnp.swapaxes(x, -2, -3)


def lead_axis(plan: Plan, x: Array) -> Array:
    """`[*B, K, S, H]` as `[B·K, S, H]` if looped, else as it is."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) if plan.looped else x


def example_axis(plan: Plan, x: Array) -> Array:
    """Positions `[*B, blocks, size]` as `[E, blocks, size]` if looped, else `[1, *B, ...]`."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) if plan.looped else x[None]


def per_step(x: Any, leads: int, key_heads: int) -> Any:
    """`[E, query blocks, visits]` for every step: `[steps, visits]`."""
    numpy = np if isinstance(x, np.ndarray) and isinstance(leads, int) else jnp
    if x.shape[0] != 1:
        x = numpy.repeat(x, key_heads, axis=0)
    return numpy.broadcast_to(x, (leads, *x.shape[1:])).reshape(leads * x.shape[1], x.shape[-1])


def steps_of(plan: Plan, inputs: Inputs, x: Array) -> Array:
    """`[*B, T, N, F]` as `[steps, *b, N, t, F]`, or `[steps, G·t, F]` if looped; whole blocks."""
    queries, _, heads, key_heads = inputs.sizes
    count = block_count(queries, plan.rows)
    x = pad_axis(heads_first(x), -2, count * plan.rows)
    if plan.looped:
        leads, group = math.prod(inputs.batch) * key_heads, heads // key_heads
        x = jnp.swapaxes(x.reshape(leads, group, count, plan.rows, x.shape[-1]), 1, 2)
        # No axis of 1 where G = 1: XLA would copy the array to give that axis another stride.
        return x.reshape(leads * count, group * plan.rows, x.shape[-1])
    return jnp.moveaxis(x.reshape(*x.shape[:-2], count, plan.rows, x.shape[-1]), -3, 0)


def unpacked(plan: Plan, x: Array) -> Array:
    """What one step holds of `steps_of`, as `[*b, N, t, F]`."""
    return x.reshape(x.shape[-2] // plan.rows, plan.rows, x.shape[-1]) if plan.looped else x


def restore(plan: Plan, inputs: Inputs, x: Array) -> Array:
    """The inverse of `steps_of`: `[steps, *b, N, t, F]` as `[*B, T, N, F]`."""
    queries, _, heads, key_heads = inputs.sizes
    count, features = block_count(queries, plan.rows), x.shape[-1]
    if plan.looped:
        leads = math.prod(inputs.batch) * key_heads
        x = jnp.swapaxes(x.reshape(leads, count, *x.shape[1:]), 1, 2)
    else:
        x = jnp.moveaxis(x, 0, -3)
    x = x.reshape(*inputs.batch, heads, count * plan.rows, features)
    return heads_first(jax.lax.slice_in_dim(x, 0, queries, axis=-2))
