"""The fixed pattern of the Sparse Transformer: the own block, and the last keys of each."""

from typing import Any

from jaxattn import _validate
from jaxattn._typing import Array
from jaxattn.masks._base import Mask, mask_class
from jaxattn.masks._order import Alignment, Causal, check_align
from jaxattn.masks._periodic import Block, check_positive
from jaxattn.masks._tiles import Blocks, Tiles, columns, everywhere


@mask_class(static=("stride", "summary", "align"))
class Fixed(Mask):
    """The fixed pattern of the Sparse Transformer: the own block, and summaries of those before.

        key ≤ query   and   (⌊query / stride⌋ = ⌊key / stride⌋   or
                             key mod stride ≥ stride - summary)

    With a stride near √T a query has about (1 + summary) · √T keys.

    Args:
      stride: tokens in a block.
      summary: how many tokens at the end of each block everybody after may attend to.
      align: as in `Causal`.

    Raises:
      TypeError: a number is no integer.
      ValueError: a number is below 1, the summary is longer than a block, or another `align`.

    Example:
      >>> from jaxattn.masks import Fixed
      >>> print(Fixed(stride=3).dense(7).astype(int))
      [[1 0 0 0 0 0 0]
       [1 1 0 0 0 0 0]
       [1 1 1 0 0 0 0]
       [0 0 1 1 0 0 0]
       [0 0 1 1 1 0 0]
       [0 0 1 1 1 1 0]
       [0 0 1 0 0 1 1]]

    Source: Child et al. 2019, section 4.3.
    """

    stride: int
    summary: int = 1
    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        check_positive("stride", self.stride)
        if not 1 <= _validate.integer("summary", self.summary) <= self.stride:
            raise ValueError(
                f"summary must be at least 1 and at most stride = {self.stride}, got {self.summary}"
            )
        check_align(self.align)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Not later, and in the own block or a summary."""
        own = Block(self.stride)(query_positions, key_positions)
        return Causal()(query_positions, key_positions) & (own | self._is_summary(key_positions))

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the blocks, and from how many summary tokens lie in each range of keys."""
        causal, own = (mask.tiles(queries, keys) for mask in (Causal(), Block(self.stride)))
        last = self._is_summary(keys.high)
        others = self._summaries_before(keys.high) - self._summaries_before(keys.low)
        some, all_of_them = (
            columns(x) & everywhere(queries, keys)
            for x in (last | (others > 0), last & (others == keys.high - keys.low))
        )
        possible = causal.possible & (own.possible | some)
        return Tiles(possible, causal.certain & (own.certain | all_of_them))

    def _is_summary(self, position: Any) -> Any:
        return position % self.stride >= self.stride - self.summary

    def _summaries_before(self, position: Any) -> Any:
        """How many summary tokens stand below a position."""
        blocks, rest = position // self.stride, position % self.stride
        return blocks * self.summary + (rest - (self.stride - self.summary)).clip(0)
