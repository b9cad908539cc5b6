"""Masks that hold a table, looked up by position: segment numbers, a whole array."""

from typing import Any

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Bool, Int
from jaxattn.masks._base import Mask, changed, mask_class
from jaxattn.masks._lookup import (
    check_batch,
    check_cover,
    check_integers,
    check_pairs,
    id_range,
    look_up,
    one,
    pair_entries,
)
from jaxattn.masks._tiles import Blocks, Tiles, columns, rows, same


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

    @property
    def reflexive(self) -> bool:
        """Where one table serves both sides."""
        return self.key_ids is None

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """Ids are integers of shape `[*B, T]` and `[*B, S]`."""
        for name, letters, ids, size in (
            ("query_ids", "[*B, T]", self.query_ids, queries),
            ("key_ids", "[*B, S]", self._key_ids(), keys),
        ):
            name = f"Segments.{name}"
            check_integers(name, ids, letters)
            check_batch(name, jnp.shape(ids), batch, letters, free_axes=1)
            check_cover(name, ids.shape[-1], size, letters)

    def _key_ids(self) -> Array:
        return self.query_ids if self.key_ids is None else self.key_ids

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Equal ids at both positions."""
        query_ids, query_inside = look_up(self.query_ids, query_positions, axis=-2)
        key_ids, key_inside = look_up(self._key_ids(), key_positions, axis=-1)
        return (query_ids == key_ids) & query_inside & key_inside

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the least and the largest id of each block: possible where the ranges meet."""
        query_low, query_high, query_full = id_range(self.query_ids, queries)
        key_low, key_high, key_full = id_range(self._key_ids(), keys)
        possible, one_id = same((query_low, query_high), (key_low, key_high))
        return Tiles(possible, one_id & rows(query_full) & columns(key_full))

    def example(self, index: Any, batch: tuple[int, ...]) -> "Segments":
        """The ids of one example of `*B`."""
        key_ids = None if self.key_ids is None else one(self.key_ids, index, batch, 1)
        query_ids = one(self.query_ids, index, batch, 1)
        return changed(self, query_ids=query_ids, key_ids=key_ids)


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
        check_pairs("Dense.array", array, batch, queries, keys)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The array's entry at both positions."""
        return pair_entries(jnp.asarray(self.array), query_positions, key_positions, outside=False)

    def example(self, index: Any, batch: tuple[int, ...]) -> "Dense":
        """The array of one example of `*B`."""
        return changed(self, array=one(self.array, index, batch, 3))
