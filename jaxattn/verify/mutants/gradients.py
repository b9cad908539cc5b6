"""Mutants with a hand-written backward pass that is wrong; the forward pass is right.

The right one, with e the cotangent of out, P the weights and D_i = <e_i, out_i>:

    dscores = P (e vᵀ - D);  dq = σ dscores k;  dk = σ dscoresᵀ q;  dv = Pᵀ e
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..dense import dense_attention, dense_scores, dense_weights, lift, put_zero, repeat_heads
from .pipeline import full_mask

Array = Any


class Backward(NamedTuple):
    """What the backward pass has at hand; heads are repeated, weights are [*B, N, T, S]."""

    query: Array
    key: Array
    value: Array
    weights: Array
    cotangent: Array
    row_sum: Array
    scale: float


def with_backward(
    backward: Callable[[Backward], tuple[Array, Array, Array]],
    weigh: Callable[..., Any] = dense_weights,
) -> Callable[..., Array]:
    """An attention with this backward pass; `weigh` recomputes the weights in it."""

    @jax.custom_vjp
    def attend(query: Array, key: Array, value: Array, mask: Array) -> Array:
        return dense_attention(query, key, value, mask)

    def forward(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, Any]:
        out = dense_attention(query, key, value, mask)
        query = put_zero(query, mask.any(1))
        key, value = (put_zero(array, mask.any(0)) for array in (key, value))
        return out, (query, key, value, mask, out)

    def reverse(kept: Any, e: Array) -> tuple[Array, Array, Array, None]:
        query, key, value, mask, out = kept
        wide_key, wide_value = repeat_heads(key, query), repeat_heads(value, query)
        weights = weigh(dense_scores(query, key), lift(mask, query.ndim))[0].astype(query.dtype)
        row_sum = jnp.swapaxes((e * out).sum(-1), -1, -2)[..., None]
        at = Backward(query, wide_key, wide_value, weights, e, row_sum, query.shape[-1] ** -0.5)
        dquery, dkey, dvalue = backward(at)
        return dquery, ungroup(dkey, key), ungroup(dvalue, value), None

    attend.defvjp(forward, reverse)
    return lambda query, key, value, mask=None: attend(
        query, key, value, full_mask(query, key, mask)
    )


def ungroup(wide: Array, narrow: Array) -> Array:
    """Sum the gradients of repeated heads: [*B, S, N, H] -> [*B, S, K, H]."""
    heads = narrow.shape[-2]
    return wide.reshape(*wide.shape[:-2], heads, wide.shape[-2] // heads, wide.shape[-1]).sum(-2)


def right(at: Backward) -> tuple[Array, Array, Array]:
    """The right backward pass."""
    scores = at.weights * (_pair(at.cotangent, at.value) - at.row_sum)
    return _finish(at, scores)


def _pair(left: Array, right: Array) -> Array:
    return jnp.einsum("...tnh,...snh->...nts", left, right)


def _finish(at: Backward, scores: Array) -> tuple[Array, Array, Array]:
    query = at.scale * jnp.einsum("...nts,...snh->...tnh", scores, at.key)
    key = at.scale * jnp.einsum("...nts,...tnh->...snh", scores, at.query)
    return query, key, jnp.einsum("...nts,...tnh->...snh", at.weights, at.cotangent)


def _without_row_sum(at: Backward) -> tuple[Array, Array, Array]:
    return _finish(at, at.weights * _pair(at.cotangent, at.value))


def _key_without_scale(at: Backward) -> tuple[Array, Array, Array]:
    query, key, value = right(at)
    return query, key / at.scale, value


def _off_by_a_millionth(at: Backward) -> tuple[Array, Array, Array]:
    query, key, value = right(at)
    return query, key, value * (1 + 1e-6)


def _last_head_without(at: Backward) -> tuple[Array, Array, Array]:
    query, key, value = right(at)
    return query, key, jnp.concatenate([value[..., :-1, :], value[..., -1:, :] * 0], -2)


def _with_decay(at: Backward) -> tuple[Array, Array, Array]:
    query, key, value = right(at)
    return query, key, value + 1e-3 * at.value


def _key_with_wrong_sign(at: Backward) -> tuple[Array, Array, Array]:
    query, key, value = right(at)
    return query, -key, value


def _weights_twice(at: Backward) -> tuple[Array, Array, Array]:
    return _finish(at, at.weights * at.weights * (_pair(at.cotangent, at.value) - at.row_sum))


def _weigh_unmasked(scores: Array, allowed: Array) -> tuple[Array, Array]:
    _, lse = dense_weights(scores, allowed)
    return jnp.exp(scores - jnp.where(jnp.isfinite(lse), lse, 0)[..., None]), lse


def _weigh_base_two(scores: Array, allowed: Array) -> tuple[Array, Array]:
    _, lse = dense_weights(scores, allowed)
    shift = jnp.where(jnp.isfinite(lse), lse, 0)[..., None] * 1.4426950408889634
    return jnp.where(allowed, jnp.exp(scores - shift), 0), lse


gradient_without_row_sum = with_backward(_without_row_sum)
key_gradient_without_scale = with_backward(_key_without_scale)
key_gradient_with_wrong_sign = with_backward(_key_with_wrong_sign)
gradient_off_by_a_millionth = with_backward(_off_by_a_millionth)
last_head_without_gradient = with_backward(_last_head_without)
weight_decay_in_gradient = with_backward(_with_decay)
weights_squared_in_gradient = with_backward(_weights_twice)
gradient_without_mask = with_backward(right, _weigh_unmasked)
gradient_with_lse_in_base_two = with_backward(right, _weigh_base_two)
right_by_hand = with_backward(right)


def dropout_differs_in_backward(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """Drops the same weights in every call, but others in the backward pass."""
    keep = jnp.asarray([1, 1, 0, 1], query.dtype)[jnp.arange(key.shape[-3]) % 4] * 4 / 3
    keep = keep[(None,) * (key.ndim - 3) + (slice(None), None, None)]
    forward, backward = (
        dense_attention(query, key, value * k, mask) for k in (keep, jnp.roll(keep, 1, -3))
    )
    return backward + jax.lax.stop_gradient(forward - backward)
