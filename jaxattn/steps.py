"""Steps: what one block of queries needs, cut out of the whole.

Letters: see `jaxattn._typing`; t and s are the sizes of a block. `*b` are the batch axes of a step:
`*B` where steps are batched, none where they are looped over. Looped, a step has the G query
heads of one key head.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._door import Inputs
from jaxattn._precision import accumulator
from jaxattn._typing import Array
from jaxattn.dense import for_query_heads
from jaxattn.dropout import Dropout
from jaxattn.masks import Mask
from jaxattn.tiles import (
    Plan,
    block_count,
    classify,
    pad_axis,
    pick,
    position_blocks,
    shifted,
    take_block,
    visits,
    whole_blocks,
)


class Index(NamedTuple):
    """Where a step stands: example and key head (`lead`), query block, visits; and its query."""

    lead: Any
    row: Any
    block: Any
    kind: Any
    query: Array


class Layout(NamedTuple):
    """All inputs in steps. `key` and `value` are `[leads, *b, K, S, .]`, padded to blocks."""

    plan: Plan
    inputs: Inputs
    key: Array
    value: Array
    row_positions: Any
    column_positions: Any
    kinds: tuple[int, ...]
    steps: Index


class Tile(NamedTuple):
    """One block of keys as a step sees it."""

    key: Array
    value: Array
    positions: Array
    pairs: Array | None
    bias: Array | None


@dataclasses.dataclass(frozen=True)
class Step:
    """One block of queries: its own `inputs` (batch axes `*b`), and which tiles it visits."""

    inputs: Inputs
    query: Array
    key: Array
    value: Array
    positions: Array
    columns: Array
    heads: Array
    size: int
    block: Array
    kind: Array
    kinds: tuple[int, ...]

    def tile(self, block: Array) -> Tile:
        """The block of keys with this number."""
        start = block * self.size
        key, value = (take_block(x, -2, start, self.size) for x in (self.key, self.value))
        columns = jnp.moveaxis(self.columns, -2, 0)
        positions = pick(columns, block)[..., None, None, :]
        pairs, bias = (
            None if x is None else take_block(x, -1, start, self.size)
            for x in (self.inputs.pairs, self.inputs.bias)
        )
        return Tile(key, value, positions, pairs, bias)

    def bias_tile(self, tile: Tile) -> Array | None:
        """The bias of this tile, from an array or a function."""
        if self.inputs.bias_function is None:
            return tile.bias
        given = self.inputs.bias_function(self.positions, tile.positions)
        return for_query_heads(_validate.pair_result("bias", given, *self.sizes), self.inputs, -3)

    @property
    def sizes(self) -> tuple[tuple[int, ...], tuple[int, int], int, int]:
        """`*b`, (N, K), t and s: what an array over pairs may have as axes."""
        *batch, heads, rows, _ = self.query.shape
        return tuple(batch), (heads, self.key.shape[-3]), rows, self.size

    def rows_like(self, fill: float) -> Array:
        """`[*b, N, t, 1]` of one number."""
        return jnp.full_like(jnp.sum(self.query, axis=-1, keepdims=True), fill, self.dtype)

    def out_like(self) -> Array:
        """Zeros `[*b, N, t, Hv]`."""
        shape = (*self.query.shape[:-1], self.value.shape[-1])
        return jnp.broadcast_to(self.rows_like(0.0), shape)

    @property
    def dtype(self) -> Any:
        """What sums are taken in."""
        return accumulator(self.query.dtype)


def arrange(plan: Plan, inputs: Inputs) -> Layout:
    """Cut the inputs into steps, and find out which tiles each has to visit."""
    queries, keys, _, key_heads = inputs.sizes
    rank = len(inputs.batch)
    rows = position_blocks(inputs.query_positions, queries, inputs.query_offset, plan.rows, rank)
    columns = position_blocks(inputs.key_positions, keys, 0, plan.columns, rank)
    found = visits(classify(inputs, rows, columns), plan.looped)
    padded = block_count(keys, plan.columns) * plan.columns
    key, value = (pad_axis(heads_first(x), -2, padded) for x in (inputs.key, inputs.value))
    leads = math.prod(inputs.batch) * key_heads if plan.looped else 1
    count = block_count(queries, plan.rows)
    number = np.arange(leads * count) if isinstance(count, int) else jnp.arange(leads * count)
    lead, row = (x.astype(np.int32) for x in (number // count, number % count))
    return Layout(
        plan=plan,
        inputs=inputs,
        key=lead_axis(plan, key),
        value=lead_axis(plan, value),
        row_positions=example_axis(plan, rows.positions),
        column_positions=example_axis(plan, columns.positions),
        kinds=found.kinds,
        steps=Index(
            lead,
            row,
            per_step(found.block, leads, key_heads),
            per_step(found.kind, leads, key_heads),
            steps_of(plan, inputs, scaled_query(inputs)),
        ),
    )


def view(layout: Layout, index: Index) -> Step:
    """One step of the layout."""
    plan, inputs = layout.plan, layout.inputs
    *_, heads, key_heads = inputs.sizes
    example, group = index.lead // key_heads, heads // key_heads
    first = index.lead % key_heads * group if plan.looped else 0
    rows = jnp.moveaxis(jnp.asarray(pick(layout.row_positions, example)), -2, 0)
    local = dataclasses.replace(
        inputs,
        mask=mask_of(layout, example),
        bias_function=bias_of(layout, example, first),
        scale=heads_of(layout, inputs.scale, first),
        softcap=heads_of(layout, inputs.softcap, first),
        dropout=dropout_of(layout, example),
        pairs=pair_rows(layout, inputs.pairs, index),
        bias=pair_rows(layout, inputs.bias, index),
    )
    return Step(
        inputs=local,
        query=index.query,
        key=pick(layout.key, index.lead),
        value=pick(layout.value, index.lead),
        positions=pick(rows, index.row)[..., None, :, None],
        columns=pick(layout.column_positions, example),
        heads=(jnp.arange(index.query.shape[-3], dtype=jnp.int32) + first)[:, None, None],
        size=plan.columns,
        block=index.block,
        kind=index.kind,
        kinds=layout.kinds,
    )


def scaled_query(inputs: Inputs) -> Array:
    """`σ q_i` where that loses nothing: T·H products in place of T·S; else the query itself."""
    if inputs.query.dtype != accumulator(inputs.query.dtype):
        return inputs.query
    return inputs.query * jnp.swapaxes(inputs.scale, -2, -3)


def heads_first(x: Array) -> Array:
    """`[*B, T, N, H] -> [*B, N, T, H]`."""
    return jnp.swapaxes(x, -2, -3)


def lead_axis(plan: Plan, x: Array) -> Array:
    """`[*B, K, S, H]` as `[B·K, 1, S, H]` if looped, else `[1, *B, K, S, H]`."""
    return x.reshape(math.prod(x.shape[:-2]), 1, *x.shape[-2:]) if plan.looped else x[None]


def example_axis(plan: Plan, x: Array) -> Array:
    """Positions `[*B, blocks, size]` as `[E, blocks, size]` if looped, else `[1, *B, ...]`."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) if plan.looped else x[None]


def per_step(x: Any, leads: int, key_heads: int) -> Any:
    """`[E, query blocks, visits]` for every step: `[steps, visits]`."""
    numpy = np if isinstance(x, np.ndarray) else jnp
    if x.shape[0] > 1:
        x = numpy.repeat(x, key_heads, axis=0)
    return numpy.broadcast_to(x, (leads, *x.shape[1:])).reshape(leads * x.shape[1], x.shape[-1])


def steps_of(plan: Plan, inputs: Inputs, x: Array) -> Array:
    """`[*B, T, N, F]` as `[steps, *b, N, t, F]`, padded with zeros to whole blocks."""
    queries, _, heads, key_heads = inputs.sizes
    count = block_count(queries, plan.rows)
    x = pad_axis(heads_first(x), -2, count * plan.rows)
    if plan.looped:
        leads, group = math.prod(inputs.batch) * key_heads, heads // key_heads
        x = jnp.swapaxes(x.reshape(leads, group, count, plan.rows, x.shape[-1]), 1, 2)
        return x.reshape(leads * count, group, plan.rows, x.shape[-1])
    return jnp.moveaxis(x.reshape(*x.shape[:-2], count, plan.rows, x.shape[-1]), -3, 0)


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


def mask_of(layout: Layout, example: Any) -> Mask | None:
    """The mask of the step's examples."""
    mask = layout.inputs.mask
    if mask is None or not layout.plan.looped:
        return mask
    return mask.example(example, layout.inputs.batch)


def bias_of(layout: Layout, example: Any, first: Any) -> Any:
    """The bias function of the step's examples and heads."""
    bias, inputs = layout.inputs.bias_function, layout.inputs
    if bias is None or not layout.plan.looped:
        return bias
    *_, heads, key_heads = inputs.sizes
    return bias.example(example, inputs.batch).heads(first, heads // key_heads)


def heads_of(layout: Layout, x: Array | None, first: Any) -> Array | None:
    """Numbers `[1.., N, 1, 1]` for the heads of a step."""
    if x is None or not layout.plan.looped:
        return x
    return head_slice(x.reshape(x.shape[-3:]), layout.inputs, first)


def head_slice(x: Array, inputs: Inputs, first: Any) -> Array:
    """The G query heads from `first` on, along an axis -3 that has 1, K or N of them."""
    *_, heads, key_heads = inputs.sizes
    group = heads // key_heads
    if x.shape[-3] == 1:
        return x
    if x.shape[-3] == heads:
        return jax.lax.dynamic_slice_in_dim(x, first, group, axis=-3)
    return jax.lax.dynamic_slice_in_dim(x, first // group, 1, axis=-3)


def dropout_of(layout: Layout, example: Any) -> Dropout | None:
    """Dropout of the step's examples."""
    dropout = layout.inputs.dropout
    if dropout is None or not layout.plan.looped:
        return dropout
    words, batch = dropout.words.reshape(-1, 2), dropout.batch.reshape(-1)
    return Dropout(pick(words, example), pick(batch, example), dropout.rate)


def pair_rows(layout: Layout, x: Array | None, index: Index) -> Array | None:
    """The rows of a step from an array over pairs: `[*b, N, t, S]` with broadcasting ones.

    One slice of all axes, so that nothing of the size of x is made on the way.
    """
    if x is None:
        return None
    plan, inputs = layout.plan, layout.inputs
    *_, heads, key_heads = inputs.sizes
    start = index.row * plan.rows
    rows = min(plan.rows, x.shape[-2]) if isinstance(x.shape[-2], int) else plan.rows
    x = whole_blocks(x, -2, rows)
    begin = jnp.minimum(start, x.shape[-2] - rows)
    if not plan.looped:
        piece = jax.lax.dynamic_slice_in_dim(x, begin, rows, axis=-2)
        return for_query_heads(shifted(piece, -2, start - begin, x.shape[-2]), inputs, axis=-3)
    example, group = index.lead // key_heads, index.lead % key_heads
    places = jnp.unravel_index(example, inputs.batch) if inputs.batch else ()
    starts = [jnp.where(size > 1, place, 0) for size, place in zip(x.shape, places, strict=False)]
    count = heads // key_heads if x.shape[-3] == heads else 1
    starts += [group * count if x.shape[-3] > 1 else 0, begin, 0]
    sizes = [1] * len(places) + [count, rows, x.shape[-1]]
    starts = [jnp.asarray(start, jnp.int32) for start in starts]
    piece = jax.lax.dynamic_slice(x, starts, sizes).reshape(sizes[-3:])
    return shifted(piece, -2, start - begin, x.shape[-2])
