"""Masks that end somewhere: padding, and the prefix that everybody sees."""

from typing import Any

import jax.numpy as jnp

from jaxattn._precision import check_int32
from jaxattn._typing import Array, Int
from jaxattn.masks._base import Mask, changed, mask_class, with_rank
from jaxattn.masks._lookup import check_batch, check_integers, one, per_block, per_example
from jaxattn.masks._tiles import Blocks, Tiles, columns, everywhere, rows


@mask_class(leaves=("query", "key"))
class Lengths(Mask):
    """Padding at the end: query position < query length, key position < key length.

    Args:
      query: integers `[*B]` or one integer; None for no limit.
      key: likewise.

    Raises (when used):
      TypeError: a length is no integer.
      ValueError: lengths are neither scalar nor `[*B]`, or do not fit into int32.

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
                check_length(f"Lengths.{name}", length)
                check_batch(f"Lengths.{name}", jnp.shape(length), batch, "[*B]", free_axes=0)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Both positions lie below their lengths."""
        allowed = jnp.ones(jnp.broadcast_shapes(query_positions.shape, key_positions.shape), bool)
        for positions, length in ((query_positions, self.query), (key_positions, self.key)):
            if length is not None:
                length = per_example(length)
                rank = max(allowed.ndim, length.ndim)
                inside = with_rank(positions, rank) < with_rank(length, rank)
                allowed = with_rank(allowed, rank) & inside
        return allowed

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the lowest and the highest position of each block."""
        possible = certain = everywhere(queries, keys)
        for blocks, length, axis in ((queries, self.query, rows), (keys, self.key, columns)):
            if length is not None:
                length = per_block(length, blocks)
                possible = possible & axis(blocks.low < length)
                certain = certain & axis(blocks.high < length)
        return Tiles(possible, certain)

    def example(self, index: Any, batch: tuple[int, ...]) -> "Lengths":
        """The lengths of one example of `*B`."""
        query, key = (one(x, index, batch, 0) for x in (self.query, self.key))
        return changed(self, query=query, key=key)


@mask_class(leaves=("length",))
class Prefix(Mask):
    """The first keys, seen by every query: key position < length.

    `Causal() | Prefix(n)` is a prefix language model: the first n tokens see each other, the
    rest see what came before.

    Args:
      length: an integer or integers `[*B]`.

    Raises (when used):
      TypeError: the length is no integer.
      ValueError: lengths are neither scalar nor `[*B]`, or do not fit into int32.

    Example:
      >>> from jaxattn.masks import Causal, Prefix
      >>> print((Causal() | Prefix(2)).dense(3).astype(int))
      [[1 1 0]
       [1 1 0]
       [1 1 1]]

    Source: Raffel et al. 2020 (T5), section 3.2.1.
    """

    length: Int[Array, "*B"] | int

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """The length is an integer, or integers `[*B]`."""
        check_length("Prefix.length", self.length)
        check_batch("Prefix.length", jnp.shape(self.length), batch, "[*B]", free_axes=0)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The key lies in the prefix."""
        return Lengths(key=self.length)(query_positions, key_positions)

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the lowest and the highest key of each block."""
        return Lengths(key=self.length).tiles(queries, keys)

    def example(self, index: Any, batch: tuple[int, ...]) -> "Prefix":
        """The prefix of one example of `*B`."""
        return changed(self, length=one(self.length, index, batch, 0))


def check_length(name: str, length: Any) -> None:
    """Integers that int32 has."""
    check_int32(name, length, "the number of tokens is as much as any larger length")
    check_integers(name, length, "[*B]")
