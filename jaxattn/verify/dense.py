"""A dense attention in plain JAX: the yardstick for same-dtype errors and for transforms.

Differentiated by JAX itself, with the semantics the checks ask for: an empty row is 0 with lse
-inf, and what nobody may attend to is put to zero by select, so that NaN in it changes nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .problem import at_least_float32

Array = Any


def dense_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    scale: Array | None = None,
    returns_lse: bool = False,
) -> Any:
    """out_i = sum_j softmax_j(scale q_i.k_j + bias_ij) v_j over the keys j that i may attend to.

    Shapes as everywhere: query `[*B, T, N, H]`, key `[*B, S, K, H]`, value `[*B, S, K, Hv]`.

    >>> import numpy as np
    >>> from jaxattn.verify import check_all, dense_attention
    >>> check_all(dense_attention, only=("oracle",), dtypes=("float32",)).passed
    True
    """
    allowed = _allowed(query, key, mask)
    query = jnp.where(allowed.any(1)[:, None, None], query, 0)
    key, value = (jnp.where(allowed.any(0)[:, None, None], array, 0) for array in (key, value))
    scores = dense_scores(query, key, scale)
    scores = scores if bias is None else scores + bias
    weights, lse = dense_weights(scores, allowed)
    out = jnp.einsum(
        "...nts,...snh->...tnh", weights, repeat_heads(value, query).astype(weights.dtype)
    )
    out = out.astype(query.dtype)
    return (out, jnp.swapaxes(lse, -1, -2)) if returns_lse else out


def dense_scores(query: Array, key: Array, scale: Array | None = None) -> Array:
    """[*B, T, N, H], [*B, S, K, H] -> [*B, N, T, S], in float32 or wider."""
    size = query.shape[-1]
    factor = (size**-0.5 if size else 1.0) if scale is None else scale
    wide = at_least_float32(query.dtype)
    key = repeat_heads(key, query).astype(wide)
    return jnp.einsum("...tnh,...snh->...nts", query.astype(wide), key) * factor


def dense_weights(scores: Array, allowed: Array) -> tuple[Array, Array]:
    """Softmax over the allowed keys, and its logsumexp; a row without any has 0 and -inf."""
    top = jnp.max(jnp.where(allowed, scores, -jnp.inf), -1, keepdims=True, initial=-jnp.inf)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    # Selecting before exp and after keeps 0 * inf out of every derivative.
    powers = jnp.where(allowed, jnp.exp(jnp.where(allowed, scores - top, 0)), 0)
    total = jnp.sum(powers, -1, keepdims=True)
    filled = jnp.where(total > 0, total, 1)
    lse = jnp.where(total > 0, jnp.log(filled) + top, -jnp.inf)
    return powers / filled, lse[..., 0]


def weighted_sum(weights: Array, value: Array, query: Array) -> Array:
    """[*B, N, T, S], [*B, S, K, Hv] -> [*B, T, N, Hv], in the query's dtype."""
    repeated = repeat_heads(value, query).astype(weights.dtype)
    return jnp.einsum("...nts,...snh->...tnh", weights, repeated).astype(query.dtype)


def put_zero(array: Array, used: Array) -> Array:
    """[*B, T, N, H] with the tokens that are not `used`, a boolean [T], put to 0."""
    return jnp.where(lift(used[:, None, None], array.ndim), array, 0)


def lift(array: Array, rank: int) -> Array:
    """The array with leading axes of length 1, up to this rank."""
    return jnp.reshape(array, (1,) * (rank - array.ndim) + array.shape)


def repeat_heads(array: Array, query: Array) -> Array:
    """[*B, S, K, H] -> [*B, S, N, H]: query head h reads key head h // (N / K)."""
    return jnp.repeat(array, query.shape[-2] // array.shape[-2], axis=-2)


def _allowed(query: Array, key: Array, mask: Array | None) -> Array:
    shape = (query.shape[-3], key.shape[-3])
    return jnp.ones(shape, bool) if mask is None else jnp.broadcast_to(jnp.asarray(mask), shape)
