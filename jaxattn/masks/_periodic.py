"""Masks of blocks and steps: what is allowed depends on remainders and quotients of positions."""

from typing import Any

from jaxattn import _validate
from jaxattn._typing import Array
from jaxattn.masks._base import Mask, mask_class
from jaxattn.masks._order import Alignment, Causal, SlidingWindow, check_align
from jaxattn.masks._tiles import LARGEST, Blocks, Tiles, distances, same


@mask_class(static=("step", "align"))
class Dilated(Mask):
    """Every step-th key, counted from the query: (query position - key position) mod step = 0.

    `SlidingWindow(4 * 3, 4 * 3) & Dilated(3)` is a dilated window; on a grid that is flattened row
    by row, `Dilated(width)` is attention along columns.

    Args:
      step: at least 1.
      align: as in `Causal`.

    Raises:
      TypeError: step is no integer.
      ValueError: step is below 1, or another `align`.

    Example:
      >>> from jaxattn.masks import Dilated
      >>> print(Dilated(2).dense(2, 2).astype(int))
      [[1 0]
       [0 1]]

    Source: Beltagy et al. 2020 (Longformer), section 3.1; along columns, Ho et al. 2019 (axial).
    """

    step: int
    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        check_positive("step", self.step)
        check_align(self.align)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The distance is a multiple of the step."""
        return (query_positions - key_positions) % self.step == 0

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the range of distances, and from the ranges of remainders."""
        low, high = distances(queries, keys)
        query_range, key_range = (x.span(x.positions % self.step) for x in (queries, keys))
        possible, certain = same(query_range, key_range)
        return Tiles(possible & (high - high % self.step >= low), certain)


@mask_class(static=("stride", "align"))
class Strided(Mask):
    """The strided pattern of the Sparse Transformer: the last keys, and every stride-th before.

        d = query position - key position:   d ≥ 0 and (d < stride or d mod stride = 0)

    It is `Causal() & (SlidingWindow(stride - 1, None) | Dilated(stride))`; with a stride near √T
    a query has about 2√T keys, and two layers reach everything before.

    Args:
      stride: at least 1.
      align: as in `Causal`.

    Raises:
      TypeError: stride is no integer.
      ValueError: stride is below 1, or another `align`.

    Example:
      >>> from jaxattn.masks import Strided
      >>> print(Strided(2).dense(5).astype(int))
      [[1 0 0 0 0]
       [1 1 0 0 0]
       [1 1 1 0 0]
       [0 1 1 1 0]
       [1 0 1 1 1]]

    Source: Child et al. 2019, section 4.3.
    """

    stride: int
    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        check_positive("stride", self.stride)
        check_align(self.align)

    def _parts(self) -> Mask:
        return Causal() & (SlidingWindow(self.stride - 1, None) | Dilated(self.stride))

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """One of the last keys, or a multiple of the stride away."""
        return self._parts()(query_positions, key_positions)

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Of the three masks that it is made of."""
        return self._parts().tiles(queries, keys)


@mask_class(static=("size", "align"))
class Block(Mask):
    """Block-diagonal: query and key lie in the same block, ⌊position / size⌋ is equal.

    On a grid that is flattened row by row, `Block(width)` is attention along rows.

    Args:
      size: tokens in a block, at least 1.
      align: as in `Causal`.

    Raises:
      TypeError: size is no integer.
      ValueError: size is below 1, or another `align`.

    Example:
      >>> from jaxattn.masks import Block
      >>> print(Block(2).dense(3).astype(int))
      [[1 1 0]
       [1 1 0]
       [0 0 1]]

    Source: Qiu et al. 2019 (blockwise attention); along rows, Ho et al. 2019 (axial).
    """

    size: int
    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        check_positive("size", self.size)
        check_align(self.align)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Equal block numbers."""
        return query_positions // self.size == key_positions // self.size

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the first and the last block that each side touches."""
        return same(*((x.low // self.size, x.high // self.size) for x in (queries, keys)))


def check_positive(name: str, x: Any) -> int:
    """An integer from 1 to 2^31 - 1."""
    if not 1 <= _validate.integer(name, x) <= LARGEST:
        raise ValueError(f"{name} must be at least 1 and below 2^31, got {x}")
    return x
