"""How the square of T queries and S keys is cut into tiles, and which tiles are computed.

A step is one block of queries; it visits the key blocks that its mask may allow. Looped, each
example and key head takes its own steps, so that a tile stays in cache; batched, a step holds
all of them. Letters: see `jaxattn._typing`; t and s are the sizes of a block.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn._door import Inputs
from jaxattn._typing import Array
from jaxattn.masks import And, Mask, Or
from jaxattn.masks._tiles import Blocks, Tiles, occupied

EMPTY, MIXED, FULL = 0, 1, 2


class Plan(NamedTuple):
    """Static choices: block sizes, `wide` that of keys in the value alone, whether examples and
    heads are looped over, and `padding`: whether there may be tokens that take no part."""

    rows: int
    columns: int
    wide: int
    looped: bool
    padding: bool = True


class Visits(NamedTuple):
    """Which key blocks a query block visits, and what kind of tile each is.

    `block` and `kind` are int32 `[E, query blocks, visits]` with E = 1 or the number of examples;
    NumPy where known before the program is compiled. `kinds` are those that can occur, `count` is
    the number of key blocks, and `listed` says in NumPy which visits may do anything at all.
    """

    block: Any
    kind: Any
    kinds: tuple[int, ...]
    count: int
    listed: np.ndarray | None = None


def block_count(size: int, block: int) -> int:
    """How many blocks cover `size`, at least one; also for symbolic sizes."""
    count = (size + block - 1) // block
    return max(count, 1) if isinstance(count, int) else count


def position_blocks(given: Array | None, size: int, offset: int, block: int, rank: int) -> Blocks:
    """Positions as `[*B, blocks, block]`, -1 beyond the end; NumPy where they are static."""
    count = block_count(size, block)
    if given is None and isinstance(count, int) and isinstance(offset, int):
        index = np.arange(count * block, dtype=np.int32)
        index = np.where(index < size, np.maximum(index + offset, -1), -1).astype(np.int32)
        return Blocks(index.reshape((1,) * rank + (count, block)))
    if given is None:
        given = jnp.arange(size, dtype=jnp.int32) + offset
    given = jnp.expand_dims(given, tuple(range(rank + 1 - given.ndim)))
    padded = pad_axis(given, -1, count * block, fill=-1)
    return Blocks(padded.reshape(*padded.shape[:-1], count, block))


def pad_axis(x: Array, axis: int, size: int, fill: int = 0) -> Array:
    """x with `fill` behind its end along `axis`, up to `size`."""
    if x.shape[axis] == size:
        return x
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, size - x.shape[axis])
    return jnp.pad(x, padding, constant_values=fill)


def classify(inputs: Inputs, queries: Blocks, keys: Blocks) -> Tiles:
    """Tiles `[*B, query blocks, key blocks]`; arrays over pairs make every tile mixed."""
    tiles = occupied(queries, keys)
    if inputs.mask is not None:
        said = inputs.mask.tiles(queries, keys)
        tiles = Tiles(tiles.possible & said.possible, tiles.certain & said.certain)
    if not (inputs.pairs is None and inputs.bias is None and inputs.bias_function is None):
        tiles = Tiles(tiles.possible, tiles.certain & False)
    return Tiles(*(over_examples(x, inputs.batch) for x in tiles))


def over_examples(x: Any, batch: tuple[int, ...]) -> Any:
    """Tiles of every example, unless all are alike: batch axes of 1 beside others are repeated."""
    if math.prod(x.shape[:-2]) == 1:
        return x
    numpy = np if isinstance(x, np.ndarray) else jnp
    return numpy.broadcast_to(x, (*batch, *x.shape[-2:]))


def ever_possible(mask: Mask | None, queries: Blocks, keys: Blocks) -> np.ndarray | None:
    """Tiles `[query blocks, key blocks]` that the static parts of a mask leave; None for all."""
    if mask is not None and type(mask) in (And, Or):
        left, right = (ever_possible(m, queries, keys) for m in mask.children())
        if left is None or right is None:
            return (right if left is None else left) if isinstance(mask, And) else None
        return left & right if isinstance(mask, And) else left | right
    if jax.tree.leaves(mask):
        return None  # data, known when run
    possible = (occupied(queries, keys) if mask is None else mask.tiles(queries, keys)).possible
    if not isinstance(possible, np.ndarray):
        return None
    return np.asarray(possible.any(axis=tuple(range(possible.ndim - 2))))


def visits(tiles: Tiles, looped: bool, ever: np.ndarray | None = None) -> Visits:
    """The tiles to compute. Static ones are listed; others are visited, and skipped when run.

    Of tiles that are known when run, only those are visited that are `ever` possible.
    """
    static = isinstance(tiles.possible, np.ndarray) and isinstance(tiles.certain, np.ndarray)
    numpy = np if static else jnp
    kind = numpy.where(tiles.possible, numpy.where(tiles.certain, FULL, MIXED), EMPTY)
    kind = kind.reshape(math.prod(kind.shape[:-2]), *kind.shape[-2:])
    if not looped:
        # A tile is computed where any example needs it, and unmasked where it is full for all.
        low, high = kind.min(axis=0, keepdims=True), kind.max(axis=0, keepdims=True)
        kind = numpy.where(low == high, low, MIXED)
    if static:
        return _listed(np.asarray(kind))
    kinds, count = (EMPTY, MIXED, FULL), kind.shape[-1]
    if ever is None:
        block = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), kind.shape[-2:])[None]
        return Visits(block, kind.astype(jnp.int32), kinds, count)
    few = _listed(ever[None].astype(np.int32))
    kind = jnp.take_along_axis(kind, jnp.asarray(few.block), axis=-1)
    return Visits(few.block, kind.astype(jnp.int32), kinds, count, few.listed)


def _listed(kind: np.ndarray) -> Visits:
    """Active tiles first, in order; as many visits as the busiest query block makes."""
    count = kind.shape[-1]
    order = np.argsort(kind == EMPTY, axis=-1, kind="stable")
    most = int((kind != EMPTY).sum(axis=-1).max(initial=0))
    block = order[..., :most].astype(np.int32)
    kind = np.take_along_axis(kind, block, axis=-1).astype(np.int32)
    return Visits(block, kind, tuple(int(k) for k in np.unique(kind)), count, kind != EMPTY)


def take_block(x: Array, axis: int, start: Any, size: int) -> Array:
    """`x[start : start + size]` along `axis`, zeros beyond the end; an axis of 1 broadcasts.

    The slice that would reach beyond is clamped and shifted, so that x is never copied.
    """
    if isinstance(x.shape[axis], int):
        size = min(size, x.shape[axis])
    x = whole_blocks(x, axis, size)
    begin = jnp.minimum(start, x.shape[axis] - size)
    piece = jax.lax.dynamic_slice_in_dim(x, begin, size, axis)
    return shifted(piece, axis, start - begin, x.shape[axis])


def whole_blocks(x: Array, axis: int, size: int) -> Array:
    """x, padded to whole blocks where its size is symbolic (a block may be larger than it)."""
    total = x.shape[axis]
    return x if isinstance(total, int) else pad_axis(x, axis, block_count(total, size) * size)


def shifted(piece: Array, axis: int, amount: Any, total: int) -> Array:
    """A clamped slice moved to where it was meant to start, with zeros behind; blocks may fit."""
    size = piece.shape[axis]
    if not isinstance(total, int) or total % max(size, 1) == 0:
        return piece
    piece = pad_axis(piece, axis, 2 * size)
    return jax.lax.dynamic_slice_in_dim(piece, amount, size, axis)


def pick(x: Any, index: Any) -> Array:
    """`x[index]` along the first axis, where an axis of 1 serves every index."""
    x = jnp.asarray(x)
    if x.shape[0] == 1:
        return x[0]
    return jax.lax.dynamic_index_in_dim(x, index, keepdims=False)
