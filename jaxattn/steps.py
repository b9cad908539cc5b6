"""One step: what a block of queries needs, cut out of the layout.

Letters: see `jaxattn._typing`; `*b`, t and s as in `jaxattn.layout`.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._door import Inputs
from jaxattn._precision import accumulator
from jaxattn._typing import Array
from jaxattn.dense import for_query_heads
from jaxattn.dropout import Dropout
from jaxattn.layout import Index, Layout, unpacked
from jaxattn.masks import Mask
from jaxattn.tiles import pick, shifted, take_block, whole_blocks


class Tile(NamedTuple):
    """One block of keys as a step sees it: `key [*b, K, H, s]`, `value [*b, K, Hv, s]`."""

    key: Array
    value: Array
    positions: Array
    pairs: Array | None
    bias: Array | None


@dataclasses.dataclass(frozen=True)
class Step:
    """One block of queries: its own `inputs` (batch axes `*b`), and which tiles it visits.

    `key` and `value` are `[*b, K, S, .]`; or, with a `lead`, all of the layout's `[leads, S, .]`;
    or those that are visited alone. `place` says where in them a visit's keys begin.
    """

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
    padding: bool
    lead: Array | None
    place: Array

    @property
    def groups(self) -> int:
        """Key heads of a step."""
        return self.key.shape[-3] if self.lead is None else 1

    def tile(self, block: Array, place: Array) -> Tile:
        """The block of keys with this number, and their place among the step's."""
        start = block * self.size
        key, value = (self.cut(x, place) for x in (self.key, self.value))
        columns = jnp.moveaxis(self.columns, -2, 0)
        positions = pick(columns, block)[..., None, None, :]
        pairs, bias = (
            None if x is None else take_block(x, -1, start, self.size)
            for x in (self.inputs.pairs, self.inputs.bias)
        )
        return Tile(jnp.swapaxes(key, -1, -2), jnp.swapaxes(value, -1, -2), positions, pairs, bias)

    def cut(self, x: Array, start: Array) -> Array:
        """One block of keys or values, `[*b, K, s, .]`."""
        if self.lead is None:
            return take_block(x, -2, start, self.size)
        return span(x, self.lead, start, self.size)

    def bias_tile(self, tile: Tile) -> Array | None:
        """The bias of this tile, from an array or a function."""
        if self.inputs.bias_function is None:
            return tile.bias
        given = self.inputs.bias_function(self.positions, tile.positions)
        return for_query_heads(_validate.pair_result("bias", given, *self.sizes), *self.sizes[1])

    @property
    def sizes(self) -> tuple[tuple[int, ...], tuple[int, int], int, int]:
        """`*b`, (N, K), t and s: what an array over pairs may have as axes."""
        *batch, heads, rows, _ = self.query.shape
        return tuple(batch), (heads, self.groups), rows, self.size

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


def view(layout: Layout, index: Index, picked: bool = True) -> Step:
    """One step of the layout, with its keys and values `picked` from the others if looped."""
    plan, inputs = layout.plan, layout.inputs
    *_, heads, key_heads = inputs.sizes
    example, group = index.lead // key_heads, heads // key_heads
    first = index.lead % key_heads * group if plan.looped else 0
    rows = jnp.moveaxis(jnp.asarray(pick(layout.row_positions, example)), -2, 0)
    query = unpacked(plan, index.query)
    place = index.block * plan.columns
    key, value = layout.key, layout.value
    if picked and plan.looped:
        key, value, place = picked_keys(layout, index)
    return Step(
        inputs=local_inputs(layout, index, example, first),
        query=query,
        key=key,
        value=value,
        positions=pick(rows, index.row)[..., None, :, None],
        columns=pick(layout.column_positions, example),
        heads=(jnp.arange(query.shape[-3], dtype=jnp.int32) + first)[:, None, None],
        size=plan.columns,
        block=index.block,
        kind=index.kind,
        kinds=layout.kinds,
        padding=plan.padding,
        lead=index.lead if plan.looped and not picked else None,
        place=place,
    )


def picked_keys(layout: Layout, index: Index) -> tuple[Array, Array, Array]:
    """Keys and values of one step, and the place of each visit among them.

    To pick a head copies all its keys for every block of queries, which grows as T² unless few
    are visited. A derivative does better with them all the same, as it sums into as many, and not
    into those of all heads.
    """
    size, block = layout.plan.columns, index.block
    if layout.far is None:
        key, value = (pick(x, index.lead)[None] for x in (layout.key, layout.value))
        return key, value, block * size
    near = [
        span(x, index.lead, index.first * size, layout.near * size)
        for x in (layout.key, layout.value)
    ]
    far = [pick(x, index.lead)[None] for x in layout.far]
    key, value = (jnp.concatenate(pair, axis=-2) for pair in zip(far, near, strict=True))
    return key, value, index.place * size


def span(x: Array, lead: Array, start: Array, size: int) -> Array:
    """Keys of one lead: `[leads, S, .] -> [1, size, .]`."""
    return jax.lax.dynamic_slice(x, (lead, start, jnp.zeros_like(start)), (1, size, x.shape[-1]))


def local_inputs(layout: Layout, index: Index, example: Any, first: Any) -> Inputs:
    """All inputs but query, key and value, for the step's examples and heads."""
    inputs = layout.inputs
    return dataclasses.replace(
        inputs,
        mask=mask_of(layout, example),
        bias_function=bias_of(layout, example, first),
        scale=heads_of(layout, inputs.scale, first),
        softcap=heads_of(layout, inputs.softcap, first),
        dropout=dropout_of(layout, example),
        pairs=pair_rows(layout, inputs.pairs, index),
        bias=pair_rows(layout, inputs.bias, index),
    )


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
        return for_query_heads(shifted(piece, -2, start - begin, x.shape[-2]), heads, key_heads)
    example, group = index.lead // key_heads, index.lead % key_heads
    places = jnp.unravel_index(example, inputs.batch) if inputs.batch else ()
    starts = [0 if size == 1 else place for size, place in zip(x.shape, places, strict=False)]
    count = heads // key_heads if x.shape[-3] == heads else 1
    starts += [group * count if x.shape[-3] > 1 else 0, begin, 0]
    sizes = [1] * len(places) + [count, rows, x.shape[-1]]
    starts = [jnp.asarray(start, jnp.int32) for start in starts]
    piece = jax.lax.dynamic_slice(x, starts, sizes).reshape(sizes[-3:])
    return shifted(piece, -2, start - begin, x.shape[-2])
