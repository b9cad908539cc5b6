"""Masks are functions of positions: who may attend to whom.

A mask is called as `mask(query_positions, key_positions) -> bool` with positions that broadcast,
`[..., t, 1]` and `[..., 1, s]`; True takes part. Masks compose with `&`, `|` and `~`, are
pytrees (arrays inside are leaves), are drawn as an array by `mask.dense(T, S)` and as a picture by
`show(mask, T, S)`.

    order      Causal, SlidingWindow, Dilated, Strided, Fixed
    length     Prefix, Lengths
    documents  Segments, Block
    far        Global, BigBird
    images     Neighbourhood; Block(width) along rows, Dilated(width) along columns
    anything   Dense, Predicate

Each knows which tiles of the score matrix are empty, mixed or full, without looking at the pairs:
what is empty is never computed, and what is full is never masked. `Dense` and `Predicate` cannot
know; every tile of theirs is mixed. So it is with a `Mask` of your own that defines `__call__`
alone, on top of one of these too: nothing that these know of themselves is inherited with it.

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
from jaxattn.masks._bigbird import BigBird as BigBird
from jaxattn.masks._data import Dense as Dense
from jaxattn.masks._data import Segments as Segments
from jaxattn.masks._fixed import Fixed as Fixed
from jaxattn.masks._global import Global as Global
from jaxattn.masks._lengths import Lengths as Lengths
from jaxattn.masks._lengths import Prefix as Prefix
from jaxattn.masks._neighbourhood import Neighbourhood as Neighbourhood
from jaxattn.masks._order import Causal as Causal
from jaxattn.masks._order import SlidingWindow as SlidingWindow
from jaxattn.masks._periodic import Block as Block
from jaxattn.masks._periodic import Dilated as Dilated
from jaxattn.masks._periodic import Strided as Strided
from jaxattn.masks._predicate import Predicate as Predicate
from jaxattn.masks._show import show as show

__all__ = [
    "And",
    "BigBird",
    "Block",
    "Causal",
    "Dense",
    "Dilated",
    "Fixed",
    "Global",
    "Lengths",
    "Mask",
    "Neighbourhood",
    "Not",
    "Or",
    "Predicate",
    "Prefix",
    "Segments",
    "SlidingWindow",
    "Strided",
    "show",
]
