"""Masks are functions of positions: who may attend to whom.

A mask is called as `mask(query_positions, key_positions) -> bool` with positions that broadcast,
`[..., t, 1]` and `[..., 1, s]`; True takes part. Masks compose with `&`, `|` and `~`, are
pytrees (arrays inside are leaves), and are drawn by `mask.dense(T, S)`.

Example:
  >>> from jaxattn.masks import Causal, SlidingWindow
  >>> print((Causal() & SlidingWindow(left=1, right=1)).dense(3, 3).astype(int))
  [[1 0 0]
   [1 1 0]
   [0 1 1]]
"""

from jaxattn.masks._base import And as And
from jaxattn.masks._base import Mask as Mask
from jaxattn.masks._base import Not as Not
from jaxattn.masks._base import Or as Or
from jaxattn.masks._data import Dense as Dense
from jaxattn.masks._data import Lengths as Lengths
from jaxattn.masks._data import Segments as Segments
from jaxattn.masks._order import Causal as Causal
from jaxattn.masks._order import SlidingWindow as SlidingWindow
from jaxattn.masks._predicate import Predicate as Predicate

__all__ = [
    "And",
    "Causal",
    "Dense",
    "Lengths",
    "Mask",
    "Not",
    "Or",
    "Predicate",
    "Segments",
    "SlidingWindow",
]
