"""Mutants in masks, padding, empty rows, heads and caches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..dense import dense_attention, dense_scores, dense_weights, lift
from .pipeline import full_mask, keep_all, pipeline

Array = Any


def mask_after_softmax(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Hidden keys are put to zero after the softmax: rows no longer sum to one."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        weights, lse = dense_weights(scores, jnp.ones_like(allowed))
        return jnp.where(allowed, weights, 0), lse

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def padding_in_denominator(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """Keys that no query may attend to are counted in the denominator, as keys of zero."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        weights, lse = dense_weights(scores, allowed | ~allowed.any(-2, keepdims=True))
        return jnp.where(allowed, weights, 0), lse

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def mask_minus_twenty(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """The mask subtracts 20 from a score: exp(-20) of a hidden key is left."""
    return _penalised(query, key, value, mask, 20.0)


def mask_minus_billion(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """The mask subtracts 1e9 from a score: enough, until a hidden score is larger."""
    return _penalised(query, key, value, mask, 1e9)


def _penalised(query: Array, key: Array, value: Array, mask: Array | None, amount: float) -> Array:
    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        return dense_weights(
            scores - jnp.where(allowed, 0, amount).astype(scores.dtype), allowed | True
        )

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def mask_ignored(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Takes a mask and does not use it."""
    return dense_attention(query, key, value)


def causal_off_by_one(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Each query also sees the key after the last one it may see. Passes every gradient check."""
    allowed = full_mask(query, key, mask)
    return dense_attention(query, key, value, allowed | jnp.pad(allowed, ((0, 0), (1, 0)))[:, :-1])


def causal_strict(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A query does not see its own key (but for the first)."""
    allowed = full_mask(query, key, mask)
    own = jnp.eye(*allowed.shape, dtype=bool).at[0, 0].set(False)
    return dense_attention(query, key, value, allowed & ~own)


def window_one_too_wide(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Each query also sees the key before the first one of every stretch that it may see."""
    allowed = full_mask(query, key, mask)
    return dense_attention(query, key, value, allowed | jnp.pad(allowed, ((0, 0), (0, 1)))[:, 1:])


def reversed_causal(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """The mask is read from the last key to the first."""
    return dense_attention(query, key, value, full_mask(query, key, mask)[:, ::-1])


def causal_without_mask(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Without a mask it is causal, silently."""
    if mask is None:
        mask = jnp.tri(query.shape[-3], key.shape[-3], dtype=bool)
    return dense_attention(query, key, value, mask)


def mean_on_empty_rows(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A query that may attend to nothing gets the mean of all values, padding included."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        empty = ~allowed.any(-1, keepdims=True)
        return dense_weights(jnp.where(empty, 0, scores), allowed | empty)

    return pipeline(query, key, value, mask, weigh=weigh, clean_key=keep_all)[0]


def nan_on_empty_rows(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A query that may attend to nothing gets 0 / 0."""
    allowed = full_mask(query, key, mask)
    out = dense_attention(query, key, value, allowed)
    return jnp.where(lift(allowed.any(1)[:, None, None], out.ndim), out, jnp.nan)


def nan_gradient_on_empty_rows(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """0 / 0 of an empty row is replaced by 0 afterwards: out is right, its gradients are NaN."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        bias = jnp.where(allowed, 0, -jnp.inf).astype(scores.dtype)
        weights = jax.nn.softmax(scores + bias, axis=-1)
        return jnp.where(allowed.any(-1, keepdims=True), weights, 0), scores[..., 0]

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def nan_from_padding(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Hidden scores are selected away, but 0 * NaN of a padded value, or of dk, is left."""
    return pipeline(query, key, value, mask, clean_key=keep_all)[0]


def nan_from_empty_query(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """The same for a query that may attend to nothing."""
    return pipeline(query, key, value, mask, clean_query=keep_all)[0]


def wrong_grouping(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Query head h reads key head h mod K in place of h // (N / K)."""
    copies = [1] * (key.ndim - 2) + [query.shape[-2] // key.shape[-2], 1]
    return dense_attention(query, jnp.tile(key, copies), jnp.tile(value, copies), mask)


def examples_mixed(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Each example reads the keys of the next one in the batch."""
    rolled = jnp.roll(key, 1, axis=0) if key.ndim > 3 else key
    return dense_attention(query, rolled, value, mask)


def stale_cache_slot(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """With a single query, as in decoding, the newest key is still that of the step before."""
    if query.shape[-3] == 1 and key.shape[-3] > 1:
        key = jnp.concatenate([key[..., :-1, :, :], key[..., -2:-1, :, :]], axis=-3)
    return dense_attention(query, key, value, mask)


def square_only(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Takes the number of keys to be the number of queries."""
    length = query.shape[-3]
    key, value = key.reshape(query.shape), value.reshape((*query.shape[:-1], value.shape[-1]))
    return dense_attention(query, key, value, full_mask(query, key, mask)[:, :length])


def first_batch_axis_only(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """Of two batch axes, the second is taken for copies of its first entry."""
    if query.ndim > 4:
        key, value = key[:, :1], value[:, :1]
    return dense_attention(query, key, value, mask)


def squashed_value(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Values go through tanh: out is not linear in them."""
    return dense_attention(query, key, jnp.tanh(value), mask)


def value_clipped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Values are clipped to ±65504, the largest number of float16."""
    return dense_attention(query, key, jnp.clip(value, -65504, 65504), mask)


def transposed_layout(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Reads heads for tokens, as `(B, N, T, H)`; the mask then fits by chance or not at all."""
    swapped = [jnp.swapaxes(array, -3, -2) for array in (query, key, value)]
    scores = dense_scores(*swapped[:2])
    weights, _ = dense_weights(scores, jnp.ones(scores.shape, bool))
    out = jnp.einsum("...nts,...snh->...tnh", weights, swapped[2].astype(weights.dtype))
    return jnp.swapaxes(out, -3, -2).astype(query.dtype)
