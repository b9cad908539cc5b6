"""BigBird: a window of blocks, global blocks, and random blocks for each query block."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._typing import Array
from jaxattn.masks._base import Mask, mask_class
from jaxattn.masks._global import Global
from jaxattn.masks._order import Alignment, SlidingWindow, check_align
from jaxattn.masks._periodic import check_positive
from jaxattn.masks._tiles import LARGEST, Blocks, Tiles, columns, rows


@mask_class(static=("size", "blocks", "window", "random", "global_blocks", "seed", "align"))
class BigBird(Mask):
    """Block-sparse attention of BigBird, in blocks a = ⌊query / size⌋ and b = ⌊key / size⌋:

        |a - b| ≤ (window - 1) / 2   or   a or b is global   or   b is one of a's random blocks

    The random blocks of a are drawn without replacement from the blocks that are neither global
    nor in its window, by a hash and so the same everywhere: draw k takes the
    (hash(seed, a, k) mod free)-th of those that are still free, counted from 0, where
    `hash(seed, a, k) = f(f(f(seed) ^ a) ^ k)` and f is Murmur3's 32-bit finaliser. (The modulus
    prefers some blocks by at most blocks / 2^32.) A global row has all blocks anyway.

    Args:
      size: tokens in a block.
      blocks: how many blocks there are, ⌈S / size⌉; positions beyond are not allowed.
      window: blocks in the window, odd: 3 is a block and its two neighbours.
      random: random blocks for each query block; fewer where fewer are left.
      global_blocks: blocks that all attend to and that attend to all; -1 is the last.
      seed: of the hash, from 0 to 2^32 - 1.
      align: as in `Causal`.

    Raises:
      TypeError: a number is no integer.
      ValueError: a number is out of its range, or (when used) default positions reach beyond the
        blocks.

    Example:
      >>> from jaxattn.masks import BigBird
      >>> print(BigBird(size=1, blocks=7, random=1, global_blocks=(0,)).dense(7).astype(int))
      [[1 1 1 1 1 1 1]
       [1 1 1 0 0 0 1]
       [1 1 1 1 0 1 0]
       [1 1 1 1 1 0 0]
       [1 0 1 1 1 1 0]
       [1 0 0 1 1 1 1]
       [1 1 0 0 0 1 1]]

    Source: Zaheer et al. 2020, section 2 and appendix D.
    """

    size: int
    blocks: int
    window: int = 3
    random: int = 3
    global_blocks: tuple[int, ...] = (0, -1)
    seed: int = 0
    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        for name in ("size", "blocks", "window"):
            check_positive(name, getattr(self, name))
        object.__setattr__(self, "global_blocks", tuple(self.global_blocks))
        for block in self.global_blocks:
            _check_between("global_blocks", block, -self.blocks, self.blocks - 1)
        _check_between("random", self.random, 0, LARGEST)
        _check_between("seed", self.seed, 0, 2**32 - 1)
        if self.window % 2 == 0:
            raise ValueError(
                f"window must be odd, a block and as many on each side, got {self.window}"
            )
        check_align(self.align)

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """All default positions lie in the blocks."""
        for name, needed in (("queries", queries), ("keys", keys)):
            if needed is not None and needed > self.size * self.blocks:
                raise ValueError(
                    f"{self!r} covers size · blocks = {self.size * self.blocks} positions, got "
                    f"{needed} {name}; give it blocks = {-(-needed // self.size)}"
                )

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The key's block is near the query's, or one of both is global, or it is drawn."""
        query, key = query_positions // self.size, key_positions // self.size
        allowed = self._regular()(query, key)
        drawn = jnp.asarray(self.random_blocks()).astype(key.dtype)
        for draw in range(self.random):
            allowed = allowed | (drawn[:, draw].at[query].get(mode="clip") == key)
        return allowed & (query < self.blocks) & (key < self.blocks)

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Of the window, the global and the random blocks; exact where tiles are blocks."""
        queries, keys = (Blocks(x.positions // self.size) for x in (queries, keys))
        possible, certain = self._regular().tiles(queries, keys)
        drawn = self._drawn_tiles(queries, keys)
        inside, ends_inside = (
            rows(q < self.blocks) & columns(k < self.blocks)
            for q, k in ((queries.low, keys.low), (queries.high, keys.high))
        )
        return Tiles((possible | drawn.possible) & inside, (certain | drawn.certain) & ends_inside)

    def random_blocks(self) -> np.ndarray:
        """The random blocks of each query block, `[blocks, random]`; -1 where none was left."""
        half = self.window // 2
        own = np.arange(self.blocks)[:, None]
        near = own + np.arange(-half, half + 1)
        near = np.where((near >= 0) & (near < self.blocks), near, self.blocks)
        everywhere = np.array(self._globals(), np.int64)[None]
        double = np.abs(everywhere - own) <= half
        taken = np.concatenate([near, np.where(double, self.blocks, everywhere)], axis=1)
        drawn = draw_distinct(self.seed, self.random, self.blocks, taken)
        return np.where(drawn < self.blocks, drawn, -1).astype(np.int32)

    def _globals(self) -> tuple[int, ...]:
        return tuple(sorted({block % self.blocks for block in self.global_blocks}))

    def _regular(self) -> Mask:
        """All but the random blocks, as a mask on block numbers."""
        half = self.window // 2
        return SlidingWindow(half, half) | Global(self._globals())

    def _drawn_tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Whether a random block of somebody in the query block lies in the key block's range."""
        drawn = queries.numpy.asarray(self.random_blocks())
        index = queries.numpy.clip(queries.positions, 0, self.blocks - 1)
        drawn = queries.numpy.where((queries.positions >= 0)[..., None], drawn[index], -1)
        drawn = drawn.reshape(*drawn.shape[:-2], -1)
        possible = any_between(drawn, keys.low, keys.high, self.blocks)
        single = rows(queries.low == queries.high) & columns(keys.low == keys.high)
        return Tiles(possible, possible & single)


def draw_distinct(seed: int, draws: int, size: int, taken: np.ndarray) -> np.ndarray:
    """Numbers below `size` that are not `taken` `[rows, m]`, distinct in each row: `[rows, draws]`.

    `size` stands for nobody, in `taken` and where no number is left.
    """
    found = np.empty((len(taken), 0), np.int64)
    own = np.arange(len(taken), dtype=np.uint32)
    for draw in range(draws):
        free = size - (taken < size).sum(axis=1)
        number = mix(mix(mix(np.full_like(own, seed)) ^ own) ^ np.uint32(draw))
        place = number.astype(np.int64) % np.maximum(free, 1)
        # The place counts free numbers only: step over those taken, from the lowest on.
        for other in np.sort(taken, axis=1).T:
            place = place + (place >= other)
        place = np.where(free > 0, place, size)[:, None]
        taken, found = np.append(taken, place, axis=1), np.append(found, place, axis=1)
    return found


def mix(x: np.ndarray) -> np.ndarray:
    """Murmur3's 32-bit finaliser (Appleby, public domain), known before the program is compiled."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def any_between(numbers: Any, low: Any, high: Any, limit: int) -> Any:
    """Whether a number of a row lies in [low, high]: `[*B, q, m], [*B, k], [*B, k] -> [*B, q, k]`.

    Numbers lie in [-1, limit). Rows are sorted, one after the other at a distance, so that one
    binary search answers for all.
    """
    numpy = np if all(isinstance(x, np.ndarray) for x in (numbers, low, high)) else jnp
    lead = np.broadcast_shapes(numbers.shape[:-2], low.shape[:-1])
    shape = (*lead, numbers.shape[-2], low.shape[-1])
    lines = math.prod(shape[:-1])
    numbers = numpy.broadcast_to(numbers, (*lead, *numbers.shape[-2:])).reshape(
        lines, numbers.shape[-1]
    )
    shift = numpy.arange(lines, dtype=numbers.dtype)[:, None] * (limit + 1)
    line = (numpy.sort(numbers, axis=-1) + shift).reshape(-1)
    low, high = (
        numpy.broadcast_to(columns(numpy.clip(x, -1, limit)), shape).reshape(-1, shape[-1]) + shift
        for x in (low, numpy.minimum(high, limit - 1))
    )
    first = numpy.searchsorted(line, low, side="left")
    return (numpy.searchsorted(line, high, side="right") > first).reshape(shape)


def _check_between(name: str, x: Any, low: int, high: int) -> None:
    if not low <= _validate.integer(name, x) <= high:
        raise ValueError(f"{name} must lie between {low} and {high}, got {x}")
