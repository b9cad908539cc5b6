"""Masks that hold data: lengths, segment numbers, a whole array. All are looked up by position."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Bool, Int
from jaxattn.masks._base import Mask, mask_class, with_rank
from jaxattn.masks._tiles import Blocks, Tiles, columns, rows


@mask_class(leaves=("query", "key"))
class Lengths(Mask):
    """Padding at the end: query position < query length, key position < key length.

    Args:
      query: integers `[*B]` or one integer; None for no limit.
      key: likewise.

    Raises (when used):
      TypeError: a length is no integer.
      ValueError: lengths are neither scalar nor `[*B]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.masks import Lengths
      >>> print(Lengths(key=jnp.array(2)).dense(2, 3).astype(int))
      [[1 1 0]
       [1 1 0]]
    """

    query: Int[Array, "*B"] | int | None = None
    key: Int[Array, "*B"] | int | None = None

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """Lengths are integers, scalar or `[*B]`."""
        for name, length in (("query", self.query), ("key", self.key)):
            if length is not None:
                _check_integers(f"Lengths.{name}", length, "[*B]")
                _check_batch(f"Lengths.{name}", jnp.shape(length), batch, "[*B]", free_axes=0)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Both positions lie below their lengths."""
        allowed = jnp.ones(jnp.broadcast_shapes(query_positions.shape, key_positions.shape), bool)
        for positions, length in ((query_positions, self.query), (key_positions, self.key)):
            if length is not None:
                length = _per_example(length)
                rank = max(allowed.ndim, length.ndim)
                inside = with_rank(positions, rank) < with_rank(length, rank)
                allowed = with_rank(allowed, rank) & inside
        return allowed

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the lowest and the highest position of each block."""
        possible = certain = rows(queries.high >= -1) & columns(keys.high >= -1)
        for blocks, length, axis in ((queries, self.query, rows), (keys, self.key, columns)):
            if length is not None:
                length = jnp.asarray(length).astype(jnp.int32)
                length = length[..., None] if length.ndim else length
                possible = possible & axis(blocks.low < length)
                certain = certain & axis(blocks.high < length)
        return Tiles(possible, certain)

    def example(self, index: Array, batch: tuple[int, ...]) -> "Lengths":
        """The lengths of one example of `*B`."""
        return Lengths(_one(self.query, index, batch, 0), _one(self.key, index, batch, 0))


@mask_class(leaves=("query_ids", "key_ids"))
class Segments(Mask):
    """Packed sequences: a query attends to the keys of its own segment.

    Args:
      query_ids: integers `[*B, T]` or `[T]`, looked up by query position.
      key_ids: integers `[*B, S]` or `[S]`, looked up by key position; default `query_ids`.
        A position beyond the table belongs to no segment.

    Raises (when used):
      TypeError: ids are no integers.
      ValueError: the shape does not fit `*B`, or the table ends before the default positions do.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.masks import Segments
      >>> print(Segments(jnp.array([0, 0, 1])).dense(3).astype(int))
      [[1 1 0]
       [1 1 0]
       [0 0 1]]

    Source: Krell et al. 2021, "Efficient sequence packing without cross-contamination".
    """

    query_ids: Int[Array, "*B T"]
    key_ids: Int[Array, "*B S"] | None = None

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """Ids are integers of shape `[*B, T]` and `[*B, S]`."""
        for name, letters, ids, size in (
            ("query_ids", "[*B, T]", self.query_ids, queries),
            ("key_ids", "[*B, S]", self._key_ids(), keys),
        ):
            name = f"Segments.{name}"
            _check_integers(name, ids, letters)
            _check_batch(name, jnp.shape(ids), batch, letters, free_axes=1)
            _check_cover(name, ids.shape[-1], size, letters)

    def _key_ids(self) -> Array:
        return self.query_ids if self.key_ids is None else self.key_ids

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Equal ids at both positions."""
        query_ids, query_inside = _look_up(self.query_ids, query_positions, axis=-2)
        key_ids, key_inside = _look_up(self._key_ids(), key_positions, axis=-1)
        return (query_ids == key_ids) & query_inside & key_inside

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the least and the largest id of each block: possible where the ranges meet."""
        query_low, query_high, query_full = _id_range(self.query_ids, queries)
        key_low, key_high, key_full = _id_range(self._key_ids(), keys)
        possible = (rows(query_low) <= columns(key_high)) & (columns(key_low) <= rows(query_high))
        one = (rows(query_low) == columns(key_high)) & (columns(key_low) == rows(query_high))
        return Tiles(possible, one & rows(query_full) & columns(key_full))

    def example(self, index: Array, batch: tuple[int, ...]) -> "Segments":
        """The ids of one example of `*B`."""
        key_ids = None if self.key_ids is None else _one(self.key_ids, index, batch, 1)
        return Segments(_one(self.query_ids, index, batch, 1), key_ids)


@mask_class(leaves=("array",))
class Dense(Mask):
    """A boolean array, looked up by position; pairs beyond its borders are not allowed.

    Args:
      array: boolean `[T, S]`, or `[*B, N, T, S]` with broadcasting ones.

    Raises (when used):
      TypeError: the array is not boolean.
      ValueError: its rank is neither 2 nor len(*B) + 3, or it ends before the positions do.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.masks import Causal, Dense
      >>> mask = Causal() & Dense(jnp.array([[True, True], [False, True]]))
      >>> print(mask.dense(2).astype(int))
      [[1 0]
       [0 1]]
    """

    array: Bool[Array, "*B T S"]

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """The array is boolean `[T, S]` or `[*B, N, T, S]`."""
        array = _validate.boolean_mask(self.array, "[T, S] or [*B, N, T, S]")
        _validate.minimum_rank("Dense.array", array, 2, "[T, S] or [*B, N, T, S]")
        if array.ndim > 2:
            _check_batch("Dense.array", array.shape, batch, "[*B, N, T, S]", free_axes=3)
        for axis, size, letters in ((-2, queries, "[.., T, S]"), (-1, keys, "[.., T, S]")):
            _check_cover("Dense.array", array.shape[axis], size, letters, axis)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The array's entry at both positions."""
        array = jnp.asarray(self.array)
        rank = max(array.ndim, query_positions.ndim, key_positions.ndim)
        array = with_rank(array, rank)
        rows, rows_inside = _take(array, with_rank(query_positions, rank), axis=-2)
        pairs, columns_inside = _take(rows, with_rank(key_positions, rank), axis=-1)
        return pairs & rows_inside & columns_inside


def _per_example(x: Any) -> Array:
    """`[*B]` as int32 `[*B, 1, 1, 1]`, which meets scores `[*B, N, T, S]`; a scalar stays."""
    x = jnp.asarray(x).astype(jnp.int32)
    return jnp.expand_dims(x, (-1, -2, -3)) if x.ndim else x


def _look_up(table: Any, positions: Array, axis: int) -> tuple[Array, Array]:
    """Entries of `[L]` or `[*B, L]` at `positions`, and where the position is in the table."""
    table = jnp.asarray(table)
    if table.ndim == 1:
        table = jnp.expand_dims(table, -1 if axis == -2 else -2)
    else:
        table = jnp.expand_dims(table, (-3, -1) if axis == -2 else (-3, -2))
    rank = max(table.ndim, positions.ndim)
    return _take(with_rank(table, rank), with_rank(positions, rank), axis)


def _take(array: Array, positions: Array, axis: int) -> tuple[Array, Array]:
    """Entries along `axis` at `positions` (equal rank), and where they lie in the array."""
    size = array.shape[axis]
    inside = (positions >= 0) & (positions < size)
    if size == 0:
        return jnp.zeros(
            jnp.broadcast_shapes(inside.shape, array.shape[:-2] + (1, 1)), bool
        ), inside
    index = jnp.clip(positions, 0, size - 1)
    return jnp.take_along_axis(array, index, axis=axis), inside


def _id_range(table: Any, blocks: Blocks) -> tuple[Array, Array, Array]:
    """Least and largest id in each block, and whether everybody there has one."""
    positions = jnp.asarray(blocks.positions)
    flat = positions.reshape(*positions.shape[:-2], -1)
    table = jnp.asarray(table).astype(jnp.int32)
    rank = max(table.ndim, flat.ndim)
    ids, inside = _take(with_rank(table, rank), with_rank(flat, rank), axis=-1)
    inside = jnp.broadcast_to(inside, ids.shape).reshape(*ids.shape[:-1], *positions.shape[-2:])
    ids = ids.reshape(inside.shape)
    low = jnp.where(inside, ids, jnp.iinfo(jnp.int32).max).min(axis=-1)
    high = jnp.where(inside, ids, jnp.iinfo(jnp.int32).min).max(axis=-1)
    return low, high, inside.all(axis=-1)


def _one(x: Any, index: Array, batch: tuple[int, ...], free_axes: int) -> Any:
    """Entry `index` of the flattened `*B`; what has no batch axes stays."""
    if x is None or jnp.ndim(x) <= free_axes:
        return x
    x = jnp.broadcast_to(x, (*batch, *x.shape[len(batch) :]))
    x = x.reshape(-1, *x.shape[len(batch) :])
    return jax.lax.dynamic_index_in_dim(x, index, keepdims=False)


def _check_integers(name: str, x: Any, letters: str) -> None:
    if not jnp.issubdtype(jnp.result_type(x), jnp.integer):
        raise TypeError(
            f"{name} must hold integers {letters}, got {jnp.result_type(x)}; cast it, for example "
            "with .astype(jnp.int32)"
        )


def _check_batch(
    name: str, shape: tuple[int, ...], batch: tuple[int, ...], letters: str, *, free_axes: int
) -> None:
    """Without its last axes the shape is `()` or broadcasts to `*B`, axis by axis."""
    leading = shape[: len(shape) - free_axes]
    fits = len(leading) == len(batch) and all(
        a in (1, b) for a, b in zip(leading, batch, strict=True)
    )
    if len(shape) < free_axes or (leading and not fits):
        raise ValueError(
            f"{name} must be {letters} with *B = {list(batch)}, got shape {list(shape)}; "
            "give every batch axis its size or 1, or leave all of them out"
        )


def _check_cover(name: str, size: int, needed: int | None, letters: str, axis: int = -1) -> None:
    if needed is not None and size < needed:
        raise ValueError(
            f"{name} {letters} is looked up by position and has {size} entries on axis {axis}, "
            f"fewer than the {needed} positions of this call; give one entry for each position"
        )
