"""Mutants in the scores and the softmax: scale, axis, maximum, rescaling, precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..dense import dense_attention, dense_scores, dense_weights, lift, repeat_heads
from .pipeline import full_mask, pipeline

Array = Any


def scale_one_over_size(
    query: Array, key: Array, value: Array, mask: Array | None = None, returns_lse: bool = False
) -> Any:
    """Scores are divided by H in place of √H. Survives every gradient check."""
    scale = 1.0 / query.shape[-1]
    return dense_attention(query, key, value, mask, scale=scale, returns_lse=returns_lse)


def no_scale(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Scores are not divided at all."""
    return dense_attention(query, key, value, mask, scale=1.0)


def scale_from_value(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Scores are divided by the root of value's head size; right where Hv = H."""
    return dense_attention(query, key, value, mask, scale=value.shape[-1] ** -0.5)


def scale_fixed_at_four(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Scores are divided by 2, the root of the head size the author tested with."""
    return dense_attention(query, key, value, mask, scale=0.5)


def softmax_over_queries(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """The softmax runs over queries in place of keys."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        weights, lse = dense_weights(jnp.swapaxes(scores, -1, -2), jnp.swapaxes(allowed, -1, -2))
        return jnp.swapaxes(weights, -1, -2), scores[..., 0]

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def softmax_over_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """The softmax runs over heads in place of keys."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        return jnp.where(allowed, jax.nn.softmax(scores, axis=-3), 0), scores[..., 0]

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def softmax_off_by_one(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A 1 in the denominator (a sink of logit 0) that nobody asked for."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        sink = jnp.zeros_like(scores[..., :1])
        more = jnp.concatenate([scores, sink], -1)
        weights, lse = dense_weights(more, jnp.concatenate([allowed, allowed[..., :1] | True], -1))
        return weights[..., :-1], lse

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def negative_weights(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Weights are sharpened away from their mean: they sum to 1, and some are negative."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        weights, lse = dense_weights(scores, allowed)
        flat, _ = dense_weights(scores * 0, allowed)
        return 1.5 * weights - 0.5 * flat, lse

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def stray_position_bias(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A bias of -|i - j| / 8 that nobody asked for."""
    T, S = query.shape[-3], key.shape[-3]
    distance = jnp.abs(jnp.arange(T)[:, None] - jnp.arange(S)[None, :]).astype(query.dtype)
    return dense_attention(query, key, value, mask, bias=lift(-distance / 8, query.ndim))


def normalised_keys(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Keys are divided by their length before use."""
    length = jnp.sqrt(jnp.sum(key * key, -1, keepdims=True) + 1e-6)
    return dense_attention(query, key / length, value, mask)


def exp_without_maximum(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """exp(s) / Σ exp(s) without subtracting the maximum: inf / inf for large scores."""

    def weigh(scores: Array, allowed: Array) -> tuple[Array, Array]:
        powers = jnp.where(allowed, jnp.exp(jnp.where(allowed, scores, 0)), 0)
        total = powers.sum(-1, keepdims=True)
        return powers / jnp.where(total > 0, total, 1), jnp.log(total[..., 0])

    return pipeline(query, key, value, mask, weigh=weigh)[0]


def no_rescale(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Online softmax in tiles of 4 keys that does not rescale its sums when the maximum rises."""
    return online(query, key, value, full_mask(query, key, mask), tile=4, rescale=False)


def last_tile_dropped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Tiles of 64 keys; beyond the first tile, a last one that is not full is left out."""
    whole = max(key.shape[-3] // 64 * 64, min(key.shape[-3], 64))
    mask = full_mask(query, key, mask)[:, :whole]
    return dense_attention(query, key[..., :whole, :, :], value[..., :whole, :, :], mask)


def online(query: Array, key: Array, value: Array, mask: Array, tile: int, rescale: bool) -> Array:
    """Attention tile by tile: top, total and out of the tiles so far; right if `rescale`."""
    scores = dense_scores(query, key)
    mask = lift(mask, scores.ndim)
    scores = jnp.where(mask, scores, -1e30)
    heads = jnp.swapaxes(repeat_heads(value, query), -3, -2).astype(scores.dtype)
    top = jnp.full((*scores.shape[:-1], 1), -1e30, scores.dtype)
    total, out = jnp.zeros_like(top), jnp.zeros((*top.shape[:-1], value.shape[-1]), top.dtype)
    for start in range(0, key.shape[-3], tile):
        part = slice(start, start + tile)
        higher = jnp.maximum(top, scores[..., part].max(-1, keepdims=True))
        factor = jnp.exp(top - higher) if rescale else jnp.ones_like(top)
        powers = jnp.where(mask[..., part], jnp.exp(scores[..., part] - higher), 0)
        total = factor * total + powers.sum(-1, keepdims=True)
        out = factor * out + powers @ heads[..., part, :]
        top = higher
    out = out / jnp.where(total > 0, total, 1)
    return jnp.swapaxes(out, -3, -2).astype(query.dtype)


def rounded_scores(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """exp(s) as 2^(1.4427 s), log2(e) cut after four digits: an error that grows with s."""
    scale = query.shape[-1] ** -0.5 * 1.4427 * 0.6931471805599453
    return dense_attention(query, key, value, mask, scale=scale)


def float32_inside(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Computes in float32 whatever it is given, and returns the dtype that came in."""
    narrow = (array.astype(jnp.float32) for array in (query, key, value))
    return dense_attention(*narrow, mask=mask).astype(query.dtype)


def always_float32(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Computes rightly, and returns float32 whatever came in."""
    return dense_attention(query, key, value, mask).astype(jnp.float32)
