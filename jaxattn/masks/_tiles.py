"""What a mask says of a whole tile, from a few numbers for each block of positions.

A tile is a block of t queries against a block of s keys. It is empty where no pair is possible,
full where every pair is certain, and mixed otherwise. Statistics are per block, so that all tiles
together cost O(T + S) plus the number of tiles, never T·S; with NumPy positions and a mask
without arrays they are NumPy arrays, known before the program is compiled.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

LARGEST = np.iinfo(np.int32).max


class Tiles(NamedTuple):
    """Booleans `[*B, query blocks, key blocks]`: may any pair be allowed, must all be."""

    possible: Any
    certain: Any


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Positions in blocks: int32 `[*B, blocks, size]`, with -1 where nobody stands.

    What is said of tiles holds for pairs of somebody and somebody: whoever uses it joins it with
    `occupied`.
    """

    positions: Any

    @property
    def numpy(self) -> Any:
        """The array library of these positions: NumPy while they are static."""
        return np if isinstance(self.positions, np.ndarray) else jnp

    @functools.cached_property
    def low(self) -> Any:
        """Lowest position in each block; the largest integer for an empty block."""
        return self.numpy.where(self.positions >= 0, self.positions, LARGEST).min(axis=-1)

    @functools.cached_property
    def high(self) -> Any:
        """Highest position in each block; below 0 for an empty block."""
        return self.positions.max(axis=-1)

    @functools.cached_property
    def full(self) -> Any:
        """Where somebody stands at every place of the block."""
        return (self.positions >= 0).all(axis=-1)

    def span(self, numbers: Any) -> tuple[Any, Any]:
        """Least and largest of `numbers` ≥ 0, one for each position, over those who stand here."""
        here = self.positions >= 0
        low = self.numpy.where(here, numbers, LARGEST).min(axis=-1)
        return low, self.numpy.where(here, numbers, -1).max(axis=-1)


def occupied(queries: Blocks, keys: Blocks) -> Tiles:
    """Possible where both blocks hold somebody, certain where they hold nobody absent."""
    possible = rows(queries.high >= 0) & columns(keys.high >= 0)
    return Tiles(possible, rows(queries.full) & columns(keys.full))


def distances(queries: Blocks, keys: Blocks) -> tuple[Any, Any]:
    """Least and largest `key position - query position` in each tile that is occupied."""
    low = columns(keys.low) - rows(queries.high)
    return low, columns(keys.high) - rows(queries.low)


def unknown(queries: Blocks, keys: Blocks) -> Tiles:
    """Nothing known: every tile is mixed."""
    possible = everywhere(queries, keys)
    return Tiles(possible, ~possible)


def everywhere(queries: Blocks, keys: Blocks) -> Any:
    """True for every tile."""
    numpy = np if queries.numpy is keys.numpy is np else jnp
    return rows(numpy.ones(queries.low.shape, bool)) & columns(numpy.ones(keys.low.shape, bool))


def same(queries: tuple[Any, Any], keys: tuple[Any, Any]) -> Tiles:
    """Whether a number of the query's equals the key's, from its range `(low, high)` in each block.

    A range that is empty (low above high) meets no other.
    """
    (query_low, query_high), (key_low, key_high) = queries, keys
    possible = (rows(query_low) <= columns(key_high)) & (columns(key_low) <= rows(query_high))
    certain = (rows(query_low) == columns(key_high)) & (columns(key_low) == rows(query_high))
    return Tiles(possible, certain)


def rows(x: Any) -> Any:
    """Numbers of query blocks, meeting tiles."""
    return x[..., :, None]


def columns(x: Any) -> Any:
    """Numbers of key blocks, meeting tiles."""
    return x[..., None, :]
