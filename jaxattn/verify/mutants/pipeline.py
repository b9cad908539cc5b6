"""The right attention as a pipeline whose stages a mutant replaces: clean, score, weigh, sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..dense import dense_scores, dense_weights, lift, put_zero, weighted_sum

Array = Any
Stage = Callable[..., Any]


def full_mask(query: Array, key: Array, mask: Array | None) -> Array:
    """The mask, or one that is True everywhere: [T, S]."""
    return jnp.ones((query.shape[-3], key.shape[-3]), bool) if mask is None else jnp.asarray(mask)


def keep_all(array: Array, used: Array) -> Array:
    """No cleaning: what is in unused tokens stays there."""
    return array


def pipeline(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    *,
    score: Stage = dense_scores,
    weigh: Stage = dense_weights,
    clean_query: Stage = put_zero,
    clean_key: Stage = put_zero,
) -> tuple[Array, Array]:
    """(out, lse [*B, T, N]) by stages: score(query, key), weigh(scores, mask) -> weights, lse.

    The mask that `weigh` gets is [1, ..., T, S], of the rank of the scores.
    """
    allowed = full_mask(query, key, mask)
    query = clean_query(query, allowed.any(1))
    key, value = (clean_key(array, allowed.any(0)) for array in (key, value))
    scores = score(query, key)
    weights, lse = weigh(scores, lift(allowed, scores.ndim))
    return weighted_sum(weights, value, query), jnp.swapaxes(lse, -1, -2)
