"""Masks of order: what is allowed depends on the distance from query to key."""

from typing import Any, Literal

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array
from jaxattn.masks._base import Mask, mask_class
from jaxattn.masks._tiles import LARGEST, Blocks, Tiles, distances, everywhere

Alignment = Literal["start", "end"] | None


@mask_class(static=("align",))
class Causal(Mask):
    """No look into the future: key position ≤ query position.

    Args:
      align: where queries stand when T ≠ S and no positions are given: "start" puts query i at
        position i, "end" the last query at the last key.

    Raises:
      ValueError: another `align`.

    Example:
      >>> from jaxattn.masks import Causal
      >>> print(Causal(align="end").dense(2, 3).astype(int))
      [[1 1 0]
       [1 1 1]]

    Source: Vaswani et al. 2017, section 3.2.3.
    """

    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        check_align(self.align)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Key position ≤ query position."""
        return key_positions <= query_positions

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the least and the largest distance."""
        low, high = distances(queries, keys)
        return Tiles(low <= 0, high <= 0)


@mask_class(static=("left", "right", "align"))
class SlidingWindow(Mask):
    """A band: query position - left ≤ key position ≤ query position + right.

    Both borders belong to the window, so that `SlidingWindow(left=w - 1, right=0)` is the
    causal window of w keys, the query's own included.

    Args:
      left: keys to the left of the query's position; None for all.
      right: keys to the right; None for all.
      align: as in `Causal`.

    Raises:
      TypeError: a border is no integer.
      ValueError: a border is negative or above 2^31 - 1, or another `align`.

    Example:
      >>> from jaxattn.masks import SlidingWindow
      >>> print(SlidingWindow(left=1, right=0).dense(3).astype(int))
      [[1 0 0]
       [1 1 0]
       [0 1 1]]

    Source: Beltagy et al. 2020 (Longformer), section 3.1.
    """

    left: int | None
    right: int | None
    align: Alignment = None
    reflexive = True

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            border = getattr(self, name)
            if border is not None and not 0 <= _validate.integer(name, border) <= LARGEST:
                raise ValueError(
                    f"{name} must be at least 0 and below 2^31, or None for no border, got "
                    f"{border}; a window away from the query is a Predicate"
                )
        check_align(self.align)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The key's distance lies in [-left, right]."""
        distance = key_positions - query_positions
        allowed = jnp.ones_like(distance, dtype=bool)
        if self.left is not None:
            allowed = allowed & (distance >= -self.left)
        if self.right is not None:
            allowed = allowed & (distance <= self.right)
        return allowed

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the least and the largest distance."""
        low, high = distances(queries, keys)
        possible = certain = everywhere(queries, keys)
        if self.left is not None:
            possible, certain = possible & (high >= -self.left), certain & (low >= -self.left)
        if self.right is not None:
            possible, certain = possible & (low <= self.right), certain & (high <= self.right)
        return Tiles(possible, certain)


def check_align(align: Any) -> None:
    """A ValueError unless `align` is one of its choices."""
    if align not in (None, "start", "end"):
        raise ValueError(f'align must be "start", "end" or None, got {align!r}')
