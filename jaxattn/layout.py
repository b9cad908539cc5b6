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
from jaxattn.spans import Spans, alike, only, spans
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
    """Where a step stands: example and key head (`lead`), query block, visits; and its query.

    `first` is the block at which the near keys of the step begin, and `place` the place of each
    visit among its keys: see `Spans`; None where a step has all keys.
    """

    lead: Any
    row: Any
    block: Any
    kind: Any
    first: Any
    place: Any
    query: Array


class Layout(NamedTuple):
    """The inputs of some query blocks, `rows`, or of all (None), in steps.

    `key` and `value` are `[leads, S, .]`, or `[*B, K, S, .]`, in blocks; `far` has those of a few
    blocks, where each step needs but these and some neighbours of its own (`near`).
    """

    plan: Plan
    inputs: Inputs
    key: Array
    value: Array
    row_positions: Any
    column_positions: Any
    kinds: tuple[int, ...]
    rows: np.ndarray | None
    far: tuple[Array, Array] | None
    near: int
    steps: Index


def arrange(plan: Plan, inputs: Inputs) -> list[Layout]:
    """Cut the inputs into steps, and find out which tiles each has to visit.

    Query blocks that visit many more tiles than most are steps of their own kind.
    """
    queries, keys, *_ = inputs.sizes
    rank = len(inputs.batch)
    rows = position_blocks(inputs.query_positions, queries, inputs.query_offset, plan.rows, rank)
    columns = position_blocks(inputs.key_positions, keys, 0, plan.columns, rank)
    ever = ever_possible(inputs.mask, rows, columns)
    found = visits(classify(inputs, rows, columns), plan.looped, ever)
    padded = block_count(keys, plan.columns) * plan.columns
    key, value = (
        lead_axis(plan, pad_axis(heads_first(x), -2, padded)) for x in (inputs.key, inputs.value)
    )
    query = steps_of(plan, inputs, scaled_query(plan, inputs))

    def layout(rows_here: np.ndarray | None) -> Layout:
        here = found if rows_here is None else only(found, rows_here)
        near = spans(here) if plan.looped else None
        return Layout(
            plan=plan,
            inputs=inputs,
            key=key,
            value=value,
            row_positions=example_axis(plan, rows.positions),
            column_positions=example_axis(plan, columns.positions),
            kinds=here.kinds,
            rows=rows_here,
            far=None if near is None else blocks_of(plan, near.far, key, value),
            near=0 if near is None else near.near,
            steps=index(plan, inputs, here, near, rows_here, query),
        )

    return [layout(part) for part in (alike(found) if plan.looped else [None])]


def index(
    plan: Plan,
    inputs: Inputs,
    found: Visits,
    near: Spans | None,
    rows: np.ndarray | None,
    query: Array,
) -> Index:
    """The steps of these query blocks, for every example and key head."""
    queries, _, _, key_heads = inputs.sizes
    leads = math.prod(inputs.batch) * key_heads if plan.looped else 1
    count = block_count(queries, plan.rows) if rows is None else len(rows)
    steps = leads * count
    number = np.arange(steps) if isinstance(steps, int) else jnp.arange(steps)
    lead, row = (x.astype(np.int32) for x in (number // count, number % count))
    return Index(
        lead,
        row if rows is None else jnp.asarray(rows, jnp.int32)[row],
        per_step(found.block, leads, key_heads),
        per_step(found.kind, leads, key_heads),
        None if near is None else per_step(near.first, leads, key_heads)[:, 0],
        None if near is None else per_step(near.place, leads, key_heads),
        chosen_rows(plan, inputs, query, rows),
    )


def blocks_of(plan: Plan, blocks: np.ndarray, key: Array, value: Array) -> tuple[Array, Array]:
    """Keys and values of these blocks."""

    def pick_blocks(x: Array) -> Array:
        size = plan.columns
        pieces = [x[:, :0], *(x[:, block * size : (block + 1) * size] for block in blocks)]
        return jnp.concatenate(pieces, axis=1)

    return pick_blocks(key), pick_blocks(value)


def chosen_rows(plan: Plan, inputs: Inputs, x: Array, rows: np.ndarray | None) -> Array:
    """`[steps, ...]` for these query blocks alone, of every example and key head."""
    if rows is None:
        return x
    count = block_count(inputs.sizes[0], plan.rows)
    leads = x.shape[0] // count
    x = x.reshape(leads, count, *x.shape[1:])
    alone = rows[-1] - rows[0] + 1 == len(rows)
    x = x[:, rows[0] : rows[-1] + 1] if alone else x[:, rows]
    return x.reshape(leads * len(rows), *x.shape[2:])


def together(layouts: list[Layout], parts: list[Array]) -> Array:
    """The inverse of `chosen_rows` for all layouts: `[steps, ...]` in the order of query blocks."""
    rows = [layout.rows for layout in layouts if layout.rows is not None]
    if not rows:
        return parts[0]
    order = np.argsort(np.concatenate(rows))
    leads = parts[0].shape[0] // len(rows[0])
    split = [x.reshape(leads, len(r), *x.shape[1:]) for x, r in zip(parts, rows, strict=True)]
    x = jnp.concatenate(split, axis=1)
    x = x if np.all(np.diff(order) == 1) else x[:, order]
    return x.reshape(leads * len(order), *x.shape[2:])


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
