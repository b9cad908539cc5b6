"""Tokens that see everybody and are seen by everybody."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._typing import Array, Int
from jaxattn.masks._base import Mask, changed, with_rank
from jaxattn.masks._lookup import check_batch, check_integers, one
from jaxattn.masks._tiles import LARGEST, Blocks, Tiles, columns, rows


@jax.tree_util.register_pytree_node_class
class Global(Mask):
    """Global tokens: a pair is allowed if its query or its key is one of them.

    `SlidingWindow(left=w, right=w) | Global((0,))` is Longformer's mask for classification.

    Args:
      tokens: positions: a tuple of integers (static), or an integer array `[R]` or `[*B, R]`
        (a leaf; fill up with -1, which is nobody).

    Raises:
      TypeError: tokens are no integers.
      ValueError: a static token is below 0 or above 2^31 - 1, or (when used) the array does not
        fit `*B`.

    Example:
      >>> from jaxattn.masks import Global, SlidingWindow
      >>> print((SlidingWindow(left=0, right=0) | Global((1,))).dense(4).astype(int))
      [[1 1 0 0]
       [1 1 1 1]
       [0 1 1 0]
       [0 1 0 1]]

    Source: Beltagy et al. 2020 (Longformer), section 3.1.
    """

    def __init__(self, tokens: tuple[int, ...] | Int[Array, "*B R"]) -> None:
        if isinstance(tokens, tuple | list | range):
            tokens = tuple(_validate.integer("tokens", token) for token in tokens)
            if not all(0 <= token <= LARGEST for token in tokens):
                raise ValueError(f"tokens must be positions ≥ 0 and below 2^31, got {tokens}")
        elif not hasattr(tokens, "shape"):
            kind = type(tokens).__name__
            raise TypeError(f"tokens must be a tuple of integers or an array [*B, R], got {kind}")
        self.tokens = tokens

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """An array of tokens is `[R]` or `[*B, R]`."""
        if not isinstance(self.tokens, tuple):
            check_integers("Global.tokens", self.tokens, "[*B, R]")
            check_batch("Global.tokens", jnp.shape(self.tokens), batch, "[*B, R]", free_axes=1)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """One of both is a global token."""
        query, key = (self._among(x, pair_axes=3) for x in (query_positions, key_positions))
        return with_rank(query, max(query.ndim, key.ndim)) | with_rank(
            key, max(query.ndim, key.ndim)
        )

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Whether a block holds one of the tokens, and nobody else."""
        (query_any, query_all), (key_any, key_all) = map(self._held, (queries, keys))
        return Tiles(rows(query_any) | columns(key_any), rows(query_all) | columns(key_all))

    def example(self, index: Any, batch: tuple[int, ...]) -> "Global":
        """The tokens of one example of `*B`."""
        if isinstance(self.tokens, tuple):
            return self
        return changed(self, tokens=one(self.tokens, index, batch, 1))

    def __repr__(self) -> str:
        shown = self.tokens
        if not isinstance(shown, tuple):
            shown = f"{shown.dtype}[{','.join(map(str, shown.shape))}]"
        return f"Global(tokens={shown})"

    def _held(self, blocks: Blocks) -> tuple[Any, Any]:
        among = self._among(blocks.positions, pair_axes=2)
        here = blocks.positions >= 0
        if isinstance(here, np.ndarray) and not isinstance(among, np.ndarray):
            here = jnp.asarray(here)
        return (among & here).any(axis=-1), (among | ~here).all(axis=-1)

    def _among(self, positions: Any, pair_axes: int) -> Any:
        """Which positions are tokens; `[*B, R]` meets positions `[*B, ...]` of more axes."""
        if isinstance(self.tokens, tuple):
            numpy = np if isinstance(positions, np.ndarray) else jnp
            return numpy.isin(positions, np.array(self.tokens, positions.dtype))
        tokens = jnp.asarray(self.tokens).astype(positions.dtype)
        if tokens.ndim > 1:
            tokens = jnp.expand_dims(tokens, tuple(range(-1 - pair_axes, -1)))
        rank = max(tokens.ndim, positions.ndim + 1)
        positions = with_rank(jnp.asarray(positions)[..., None], rank)
        return (positions == with_rank(tokens, rank)).any(axis=-1)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """An array is a child; a tuple is static."""
        static = isinstance(self.tokens, tuple)
        return ((), self.tokens) if static else ((self.tokens,), None)

    @classmethod
    def tree_unflatten(cls, static: Any, children: tuple[Any, ...]) -> "Global":
        """Inverse of `tree_flatten`, without checks: children may be anything."""
        mask = object.__new__(cls)
        mask.tokens = children[0] if children else static
        return mask
