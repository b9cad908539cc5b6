"""Tables that are looked up by position: entries, what a block holds, and checks at the door."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn._typing import Array
from jaxattn.masks._base import with_rank
from jaxattn.masks._tiles import Blocks


def per_example(x: Any) -> Array:
    """`[*B]` as int32 `[*B, 1, 1, 1]`, which meets scores `[*B, N, T, S]`; a scalar stays."""
    x = jnp.asarray(x).astype(jnp.int32)
    return jnp.expand_dims(x, (-1, -2, -3)) if x.ndim else x


def per_block(x: Any, blocks: Blocks) -> Any:
    """A number or `[*B]` as int32 that meets statistics `[*B, blocks]`."""
    if isinstance(x, int):
        return x
    x = jnp.asarray(x).astype(jnp.int32)
    return with_rank(x[..., None], max(x.ndim + 1, blocks.low.ndim)) if x.ndim else x


def look_up(table: Any, positions: Array, axis: int) -> tuple[Array, Array]:
    """Entries of `[L]` or `[*B, L]` at `positions`, and where the position is in the table."""
    table = jnp.asarray(table)
    if table.ndim == 1:
        table = jnp.expand_dims(table, -1 if axis == -2 else -2)
    else:
        table = jnp.expand_dims(table, (-3, -1) if axis == -2 else (-3, -2))
    rank = max(table.ndim, positions.ndim)
    return take(with_rank(table, rank), with_rank(positions, rank), axis)


def take(array: Array, positions: Array, axis: int) -> tuple[Array, Array]:
    """Entries along `axis` at `positions` (equal rank), and where they lie in the array."""
    size = array.shape[axis]
    inside = (positions >= 0) & (positions < size)
    if size == 0:
        shape = jnp.broadcast_shapes(inside.shape, array.shape[:-2] + (1, 1))
        return jnp.zeros(shape, array.dtype), inside
    index = jnp.clip(positions, 0, size - 1)
    return jnp.take_along_axis(array, index, axis=axis), inside


def pair_entries(array: Array, rows: Array, columns: Array, outside: Any) -> Array:
    """Entries of `[..., T, S]` at rows `[..., t, 1]` and columns `[..., 1, s]`.

    Leading axes broadcast; `outside` stands where a pair lies beyond the array. The cost is that
    of the result, whatever T and S are.
    """
    rank = max(array.ndim, rows.ndim, columns.ndim)
    array, rows, columns = (with_rank(x, rank) for x in (array, rows, columns))
    inside = [
        (x >= 0) & (x < size) for x, size in zip((rows, columns), array.shape[-2:], strict=True)
    ]
    # A negative index would count from the end, and beyond the end gives `outside` by itself.
    rows, columns = (
        jnp.where(ok, x, 2**31 - 1) for ok, x in zip(inside, (rows, columns), strict=True)
    )
    return _gather(array, rows, columns, outside)


def _gather(array: Array, rows: Array, columns: Array, outside: Any) -> Array:
    if array.ndim == 2:
        return array.at[rows, columns].get(mode="fill", fill_value=outside)
    axes = [None if x.shape[0] == 1 else 0 for x in (array, rows, columns)]
    parts = (
        x[0] if axis is None else x for x, axis in zip((array, rows, columns), axes, strict=True)
    )

    inner = functools.partial(_gather, outside=outside)
    return inner(*parts)[None] if axes == [None] * 3 else jax.vmap(inner, axes)(*parts)


def id_range(table: Any, blocks: Blocks) -> tuple[Array, Array, Array]:
    """Least and largest id in each block, and whether everybody there has one."""
    positions = jnp.asarray(blocks.positions)
    flat = positions.reshape(*positions.shape[:-2], -1)
    table = jnp.asarray(table)
    rank = max(table.ndim, flat.ndim)
    ids, inside = take(with_rank(table, rank), with_rank(flat, rank), axis=-1)
    inside = jnp.broadcast_to(inside, ids.shape).reshape(*ids.shape[:-1], *positions.shape[-2:])
    ids = ids.reshape(inside.shape)
    limits = jnp.iinfo(table.dtype)
    low = jnp.where(inside, ids, limits.max).min(axis=-1)
    high = jnp.where(inside, ids, limits.min).max(axis=-1)
    return low, high, inside.all(axis=-1)


def one(x: Any, index: Any, batch: tuple[int, ...], free_axes: int) -> Any:
    """Entry `index` of the flattened `*B`; what has no batch axes stays, and 1 serves all."""
    if x is None or jnp.ndim(x) <= free_axes:
        return x
    places = jnp.unravel_index(index, batch)
    zero = jnp.zeros_like(places[0])
    starts = [zero if size == 1 else i for size, i in zip(x.shape, places, strict=False)]
    rest = x.shape[len(batch) :]
    sizes = (1,) * len(batch) + rest
    return jax.lax.dynamic_slice(x, (*starts, *(zero for _ in rest)), sizes).reshape(rest)


def check_integers(name: str, x: Any, letters: str) -> None:
    """A TypeError unless x is made of integers."""
    if isinstance(x, list | tuple):
        raise TypeError(
            f"{name} must be integers {letters}, got a {type(x).__name__}; "
            "convert it with jnp.array"
        )
    if not jnp.issubdtype(jnp.result_type(x), jnp.integer):
        raise TypeError(
            f"{name} must hold integers {letters}, got {jnp.result_type(x)}; cast it, for example "
            "with .astype(jnp.int32)"
        )


def check_batch(
    name: str,
    shape: tuple[int, ...],
    batch: tuple[int, ...],
    letters: str,
    *,
    free_axes: int,
    optional: bool = True,
) -> None:
    """Without its last axes the shape broadcasts to `*B`, axis by axis, or may be `()`."""
    leading = shape[: len(shape) - free_axes]
    fits = len(leading) == len(batch) and all(
        a in (1, b) for a, b in zip(leading, batch, strict=True)
    )
    left_out = optional and not leading
    if len(shape) < free_axes or not (fits or left_out):
        raise ValueError(
            f"{name} must be {letters} with *B = {list(batch)}, got shape {list(shape)}; "
            "give every batch axis its size or 1, or leave all of them out"
        )


def check_cover(name: str, size: int, needed: int | None, letters: str, axis: int = -1) -> None:
    """The table has an entry for each default position."""
    if needed is not None and size < needed:
        raise ValueError(
            f"{name} {letters} is looked up by position and has {size} entries on axis {axis}, "
            f"fewer than the {needed} positions of this call; give one entry for each position"
        )


def check_pairs(
    name: str, array: Any, batch: tuple[int, ...], queries: int | None, keys: int | None
) -> None:
    """An array over pairs is `[T, S]` or `[*B, N, T, S]`, and covers all default positions."""
    if array.ndim > 2:
        letters = "[T, S] or [*B, N, T, S]"
        check_batch(name, array.shape, batch, letters, free_axes=3, optional=False)
    for axis, size in ((-2, queries), (-1, keys)):
        check_cover(name, array.shape[axis], size, "[.., T, S]", axis)
