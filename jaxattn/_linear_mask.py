"""Which tokens take part in linear attention: it never looks at pairs, so few masks are left.

Letters: see `jaxattn._typing`.
"""

from typing import Any

import jax.numpy as jnp

from jaxattn._typing import Array
from jaxattn.masks import And, Causal, Lengths, Mask


def parts(
    mask: Any, batch: tuple[int, ...], queries: int, keys: int
) -> tuple[bool, Array | None, Array | None]:
    """Whether it is causal, which queries are present `[*B, T]`, and which keys `[*B, S]`."""
    causal, here, there = False, None, None
    part: Any
    for part in _conjuncts(mask):
        if type(part) is Causal:
            causal = True
        elif type(part) is Lengths:
            part.check(batch, queries, keys)
            here = _both(here, _below(part.query, batch, queries))
            there = _both(there, _below(part.key, batch, keys))
        else:
            raise ValueError(
                f"mask must be None, Causal(), Lengths(...) or these joined by &, got {part!r}; "
                "linear attention never looks at pairs: other masks need jaxattn.attention"
            )
    if causal and queries != keys:
        raise ValueError(
            f"causal linear attention needs T = S, got T = {queries} queries and S = {keys} keys; "
            "keys that come before all queries belong into state (linear_attention_with_state "
            "gives it)"
        )
    return causal, here, there


def _conjuncts(mask: Any) -> list[Mask]:
    if mask is None:
        return []
    if not isinstance(mask, Mask):
        raise TypeError(
            f"mask must be None, Causal(), Lengths(...) or these joined by &, got "
            f"{type(mask).__name__}; linear attention never looks at pairs: an array needs "
            "jaxattn.attention"
        )
    if type(mask) is And:
        return [part for side in mask.children() for part in _conjuncts(side)]
    return [mask]


def _below(length: Any, batch: tuple[int, ...], size: int) -> Array | None:
    """Which of `size` tokens lie below the lengths, `[*B, size]`."""
    if length is None:
        return None
    lengths = jnp.asarray(length, jnp.int32)
    lengths = lengths.reshape((1,) * (len(batch) - lengths.ndim) + lengths.shape)
    places = jnp.arange(size, dtype=jnp.int32).reshape((1,) * len(batch) + (size,))
    return jnp.broadcast_to(places < lengths[..., None], (*batch, size))


def _both(left: Array | None, right: Array | None) -> Array | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right
