"""Mutants in logsumexp, bias and scale, and in how the function behaves when called or compiled."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..dense import dense_attention, dense_scores, dense_weights, lift, repeat_heads, weighted_sum
from .pipeline import full_mask

Array = Any
_calls = itertools.count()


def lse_in_base_two(
    query: Array, key: Array, value: Array, mask: Array | None = None, returns_lse: bool = False
) -> Any:
    """lse is a logarithm to base 2, as kernels that use exp2 keep it."""
    out, lse = dense_attention(query, key, value, mask, returns_lse=True)
    return (out, lse / np.log(2).astype(lse.dtype)) if returns_lse else out


def lse_gradient_dropped(
    query: Array, key: Array, value: Array, mask: Array | None = None, returns_lse: bool = False
) -> Any:
    """lse is a residual without derivatives."""
    out, lse = dense_attention(query, key, value, mask, returns_lse=True)
    return (out, jax.lax.stop_gradient(lse)) if returns_lse else out


def finite_lse_on_empty_rows(
    query: Array, key: Array, value: Array, mask: Array | None = None, returns_lse: bool = False
) -> Any:
    """lse of an empty row is -2.4e38, the number that stood for minus infinity."""
    out, lse = dense_attention(query, key, value, mask, returns_lse=True)
    return (out, jnp.maximum(lse, jnp.asarray(-2.4e38, lse.dtype))) if returns_lse else out


def bias_after_softmax(
    query: Array, key: Array, value: Array, mask: Array | None = None, bias: Array | None = None
) -> Array:
    """The bias is added to the weights in place of the scores."""
    if bias is None:
        return dense_attention(query, key, value, mask)
    weights, _ = dense_weights(
        dense_scores(query, key), lift(full_mask(query, key, mask), query.ndim)
    )
    return weighted_sum(weights + bias, value, query)


def bias_gradient_missing(
    query: Array, key: Array, value: Array, mask: Array | None = None, bias: Array | None = None
) -> Array:
    """The bias has no derivative."""
    stopped = None if bias is None else jax.lax.stop_gradient(bias)
    return dense_attention(query, key, value, mask, bias=stopped)


def scale_gradient_missing(
    query: Array, key: Array, value: Array, mask: Array | None = None, scale: Array | None = None
) -> Array:
    """The scale has no derivative."""
    stopped = None if scale is None else jax.lax.stop_gradient(scale)
    return dense_attention(query, key, value, mask, scale=stopped)


def another_when_compiled(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """Uncompiled it takes another way, which is not as precise."""
    if not isinstance(query, jax.core.Tracer):
        query = query + query.dtype.type(1e-3)
    return dense_attention(query, key, value, mask)


def another_every_call(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Sums in an order that depends on timing: the last bits differ from call to call."""
    shape = jax.ShapeDtypeStruct((), query.dtype)
    odd = jax.pure_callback(lambda: np.asarray(next(_calls) % 2, query.dtype), shape)
    unit = jnp.finfo(query.dtype).eps
    return dense_attention(query, key, value * (1 + 4 * unit * odd), mask)


def mask_must_be_known(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Looks at the mask's values in Python, which a traced mask does not have."""
    return dense_attention(query, key, value, None if mask is None else np.asarray(mask))


def quantised_out(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Out is rounded to 1/8192, with the derivative of what was not rounded."""
    out = dense_attention(query, key, value, mask)
    return out + jax.lax.stop_gradient(jnp.round(out * 8192) / 8192 - out)


def vmap_ignored(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A batching rule that takes the first example for all."""
    mask = full_mask(query, key, mask)
    attend = jax.custom_batching.custom_vmap(lambda *x: dense_attention(*x, mask=mask))

    def rule(size: int, batched: Any, *x: Array) -> tuple[Array, bool]:
        first = (
            array[0] if is_batched else array for array, is_batched in zip(x, batched, strict=True)
        )
        out = attend(*first)
        return jnp.broadcast_to(out, (size, *out.shape)), True

    attend.def_vmap(rule)
    return attend(query, key, value)


@jax.custom_batching.custom_vmap
def _first_of_all(array: Array) -> Array:
    """Itself; under vmap the first example for all."""
    return array


@_first_of_all.def_vmap
def _first_of_all_batched(size: int, batched: Any, array: Array) -> tuple[Array, bool]:
    return jnp.broadcast_to(array[:1], array.shape), True


@jax.custom_vjp
def _back_as_batch(array: Array) -> Array:
    return array


_back_as_batch.defvjp(lambda array: (array, None), lambda _, e: (_first_of_all(e),))


def vmap_ignored_in_gradient(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """A backward pass whose batching rule takes the first cotangent for all."""
    return _back_as_batch(dense_attention(query, key, value, mask))


def carry_does_not_vary(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A scan whose carry starts from zeros that do not vary over devices, as the sum does."""
    scores = dense_scores(query, key)
    weights, _ = dense_weights(scores, lift(full_mask(query, key, mask), scores.ndim))
    heads = jnp.swapaxes(repeat_heads(value, query), -3, -2).astype(weights.dtype)

    def add(total: Array, each: tuple[Array, Array]) -> tuple[Array, None]:
        return total + each[0][..., None] * each[1][..., None, :], None

    zeros = jnp.zeros((*weights.shape[:-1], value.shape[-1]), weights.dtype)
    keys = (jnp.moveaxis(weights, -1, 0), jnp.moveaxis(heads, -2, 0))
    return jnp.swapaxes(jax.lax.scan(add, zeros, keys)[0], -3, -2).astype(query.dtype)


def claims_linear_memory(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """A dense attention whose author claims linear memory."""
    return dense_attention(query, key, value, mask)


def prints_and_is_nan(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Prints when called, and returns NaN everywhere."""
    print("scores:", query.shape)
    return dense_attention(query, key, value, mask) * jnp.nan


def wrong_shape(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Returns heads and features in one axis."""
    out = dense_attention(query, key, value, mask)
    return out.reshape(*out.shape[:-2], -1)
