"""Mutants with a tangent rule that is wrong, at first, second or third order.

The right rule differentiates G_o = Σ e^{s - L} v - (Σ e^{s - L}) o with (o, L) held fixed. The
reverse pass is its transpose, made by JAX, so that these break both directions alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..dense import dense_attention, dense_scores, lift, put_zero, repeat_heads
from .gradients import Backward, right
from .pipeline import full_mask

Array = Any
Rule = Callable[..., Array]


def surrogate(x: Any, kept: Any, mask: Array) -> Array:
    """G_o(x) at fixed (out, lse): its tangent at the solution is that of out."""
    query, key, value = x
    out, lse = kept
    scores = dense_scores(query, key).astype(query.dtype)
    shift = jnp.swapaxes(jnp.where(jnp.isfinite(lse), lse, 0), -1, -2)[..., None]
    mask = lift(mask, scores.ndim)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores - shift, 0)), 0)
    total = jnp.einsum("...nts,...snh->...tnh", weights, repeat_heads(value, query))
    return total - jnp.swapaxes(weights.sum(-1), -1, -2)[..., None] * out


def with_tangent(rule: Rule, residuals: Callable[..., Any] | None = None) -> Callable[..., Array]:
    """An attention whose tangent is rule(x, dx, (out, lse), mask); residuals makes (out, lse)."""

    @jax.custom_jvp
    def inner(query: Array, key: Array, value: Array, mask: Array) -> Array:
        return dense_attention(query, key, value, mask)

    @inner.defjvp
    def tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
        *x, mask = primals  # an argument: a rule must not close over what may be traced
        kept = (residuals or solve)(*x, mask=mask)
        return kept[0], rule(_clean(x, mask), _clean(tangents[:3], mask), kept, mask)

    def attend(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        return inner(query, key, value, full_mask(query, key, mask))

    return attend


def _clean(x: Any, allowed: Array) -> Any:
    """Unused queries, keys and values put to zero."""
    used = (allowed.any(1), allowed.any(0), allowed.any(0))
    return tuple(put_zero(array, each) for array, each in zip(x, used, strict=True))


def solve(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, Array]:
    """(out, lse), differentiable by JAX to any order."""
    return dense_attention(query, key, value, mask, returns_lse=True)


def solve_as_constants(query: Array, key: Array, value: Array, mask: Array) -> Any:
    """(out, lse) as residuals without derivatives."""
    return jax.lax.stop_gradient(solve(query, key, value, mask))


def solve_to_first_order(query: Array, key: Array, value: Array, mask: Array) -> Any:
    """(out, lse) whose first derivatives are right and whose second are not."""

    @jax.custom_jvp
    def solved(query: Array, key: Array, value: Array, mask: Array) -> Any:
        return solve(query, key, value, mask)

    @solved.defjvp
    def tangent(primals: Any, tangents: Any) -> Any:
        fixed = jax.lax.stop_gradient(primals[:3])
        moved = jax.jvp(lambda *x: solve(*x, mask=primals[3]), fixed, tuple(tangents[:3]))[1]
        return solved(*primals), moved

    return solved(query, key, value, mask)


def by_surrogate(x: Any, dx: Any, kept: Any, mask: Array) -> Array:
    """The right rule."""
    return jax.jvp(lambda *x: surrogate(x, kept, mask), x, dx)[1]


def _without_lse(x: Any, dx: Any, kept: Any, mask: Array) -> Array:
    return jax.jvp(lambda *x: surrogate(x, (jnp.zeros_like(kept[0]), kept[1]), mask), x, dx)[1]


def _without_key(x: Any, dx: Any, kept: Any, mask: Array) -> Array:
    return by_surrogate(x, (dx[0], jnp.zeros_like(dx[1]), dx[2]), kept, mask)


def _query_twice(x: Any, dx: Any, kept: Any, mask: Array) -> Array:
    return by_surrogate(x, (2 * dx[0], dx[1], dx[2]), kept, mask)


def _weights_frozen(x: Any, dx: Any, kept: Any, mask: Array) -> Array:
    query, key, value = x
    shift = jnp.swapaxes(jnp.where(jnp.isfinite(kept[1]), kept[1], 0), -1, -2)[..., None]
    scores = dense_scores(query, key).astype(query.dtype)
    mask = lift(mask, scores.ndim)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores - shift, 0)), 0)
    weights = jax.lax.stop_gradient(weights)
    moved = dense_scores(dx[0], key) + dense_scores(query, dx[1])
    moved = weights * moved.astype(query.dtype)
    total = jnp.einsum("...nts,...snh->...tnh", moved, repeat_heads(value, query))
    total += jnp.einsum("...nts,...snh->...tnh", weights, repeat_heads(dx[2], query))
    return total - jnp.swapaxes(moved.sum(-1), -1, -2)[..., None] * kept[0]


def jvp_and_vjp_apart(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """jvp is right, and vjp is a kernel of its own whose key gradient lacks the scale."""
    allowed = full_mask(query, key, mask)

    @jax.custom_jvp
    def inner(*x: Array) -> Array:
        return dense_attention(*x, mask=allowed)

    def forward(kept: Any, dx: Any) -> Array:
        return by_surrogate(kept[:3], dx, kept[3:], allowed)

    def transpose(kept: Any, e: Array) -> Any:
        query, key, value, out, _ = kept
        row_sum = jnp.swapaxes((e * out).sum(-1), -1, -2)[..., None]
        scores = dense_scores(query, key) - jnp.swapaxes(kept[4], -1, -2)[..., None]
        weights = jnp.where(lift(allowed, scores.ndim), jnp.exp(scores), 0)
        dq, dk, dv = right(
            Backward(query, key, value, weights, e, row_sum, query.shape[-1] ** -0.5)
        )
        return dq, dk * query.shape[-1] ** 0.5, dv

    @inner.defjvp
    def tangent(x: Any, dx: Any) -> tuple[Array, Array]:
        out, lse = solve(*x, mask=allowed)
        return out, jax.custom_derivatives.linear_call(forward, transpose, (*x, out, lse), dx)

    return inner(query, key, value)


tangent_without_lse = with_tangent(_without_lse)
tangent_without_key = with_tangent(_without_key)
tangent_with_query_twice = with_tangent(_query_twice)
weights_frozen_in_tangent = with_tangent(_weights_frozen)
second_order_dropped = with_tangent(by_surrogate, solve_as_constants)
third_order_dropped = with_tangent(by_surrogate, solve_to_first_order)
right_by_surrogate = with_tangent(by_surrogate)
