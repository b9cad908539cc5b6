"""The definition: attention as the paper writes it, all pairs at once.

Plain JAX, differentiated by JAX, without a rule of its own: every other implementation is held
against this one, in every derivative. It takes memory for T·S scores. Letters: see
`jaxattn._typing`.
"""

import functools
import operator
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._door import Inputs
from jaxattn._mesh import regroup
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float, KeyPositions, QueryPositions
from jaxattn.partial import Partial
from jaxattn.scores import modify, soft_cap
from jaxattn.softmax import exponentials, log_or_minus_inf, normalise, weighted_sum


class Dense(NamedTuple):
    """A result with the weights that made it: `out = weights @ value`, dropout included."""

    partial: Partial
    weights: Float[Array, "*B N T S"]


def dense_attention(inputs: Inputs) -> Dense:
    """Scores, weights, sum: `softmax(mod(cap(Q Kᵀ · scale)) + bias) V`."""
    query_positions, key_positions = position_axes(inputs)
    bias = bias_array(inputs, query_positions, key_positions)
    allowed = allowed_pairs(inputs, bias, query_positions, key_positions)
    query, key, value = heads_first(inputs)
    if allowed is not None and may_have_padding(inputs):
        query, key, value = without_padding(query, key, value, allowed)

    scores = scaled_products(query, key, inputs)
    if allowed is not None and (inputs.softcap is not None or inputs.score_mod is not None):
        # Zero first: what follows may overflow, or be infinitely steep, where nobody looks.
        scores = jnp.where(allowed, scores, 0)
    if inputs.softcap is not None:
        scores = soft_cap(scores, inputs.softcap)
    if inputs.score_mod is not None:
        scores = modify(inputs.score_mod, scores, query_positions, key_positions)
        finite = scores != -jnp.inf
        allowed = finite if allowed is None else allowed & finite
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)

    terms = exponentials(scores, allowed)
    weights = drop(inputs, normalise(terms), query_positions, key_positions)
    out = weighted_sum(in_groups(weights, inputs), value, precision=inputs.precision)
    out = of_heads(out, inputs)
    lse = log_or_minus_inf(terms.total, terms.shift)[..., 0]
    return Dense(Partial(jnp.swapaxes(out, -2, -3), jnp.swapaxes(lse, -1, -2)), weights)


def position_axes(inputs: Inputs) -> tuple[QueryPositions, KeyPositions]:
    """Positions as `[*B, 1, T, 1]` and `[*B, 1, 1, S]`, given or counted, int32."""
    queries, keys, *_ = inputs.sizes
    rows = inputs.query_positions
    if rows is None:
        rows = jnp.arange(queries, dtype=jnp.int32) + inputs.query_offset
    columns = inputs.key_positions
    if columns is None:
        columns = jnp.arange(keys, dtype=jnp.int32)
    rank = len(inputs.batch) + 1
    rows, columns = (jnp.expand_dims(x, tuple(range(rank - x.ndim))) for x in (rows, columns))
    return rows[..., None, :, None], columns[..., None, None, :]


def bias_array(inputs: Inputs, query_positions: Array, key_positions: Array) -> Array | None:
    """The bias `[*B, N, T, S]` with broadcasting ones, from an array or a function."""
    bias = inputs.bias
    if inputs.bias_function is not None:
        given = inputs.bias_function(query_positions, key_positions)
        bias = _validate.pair_result("bias", given, *pair_sizes(inputs))
    return None if bias is None else for_query_heads(bias, *inputs.sizes[2:])


def allowed_pairs(
    inputs: Inputs, bias: Array | None, query_positions: Array, key_positions: Array
) -> Bool[Array, "*B N T S"] | None:
    """Who may attend to whom, with broadcasting ones: the mask, positions ≥ 0, no bias of -inf.

    None where nothing says otherwise than that all may.
    """
    counted = inputs.query_positions is None and inputs.key_positions is None
    parts = []
    if not (counted and isinstance(inputs.query_offset, int) and inputs.query_offset >= 0):
        parts = [query_positions >= 0, key_positions >= 0]
    if inputs.mask is not None:
        allowed = inputs.mask(query_positions, key_positions)
        allowed = _validate.pair_result("mask", allowed, *pair_sizes(inputs))
        parts.append(for_query_heads(allowed, *inputs.sizes[2:]))
    if inputs.pairs is not None:
        parts.append(for_query_heads(inputs.pairs, *inputs.sizes[2:]))
    if bias is not None:
        parts.append(bias != -jnp.inf)
    return functools.reduce(operator.and_, parts) if parts else None


def pair_sizes(inputs: Inputs) -> tuple[Any, ...]:
    """`*B`, (N, K), T and S: what an array over pairs may have as axes."""
    queries, keys, heads, key_heads = inputs.sizes
    return inputs.batch, (heads, key_heads), queries, keys


def heads_first(inputs: Inputs) -> tuple[Array, Array, Array]:
    """Query as `[*B, N, T, H]`, key and value as `[*B, K, S, .]`."""
    query, key, value = (jnp.swapaxes(x, -2, -3) for x in (inputs.query, inputs.key, inputs.value))
    return query, key, value


def scaled_products(query: Array, key: Array, inputs: Inputs) -> Float[Array, "*B N T S"]:
    """`attention_scores` of each query head and its key head.

    It contracts the last axes, without an array Kᵀ: where T is small, as in a step with a cache,
    to transpose the keys would take longer than all the rest.
    """
    wide = query.dtype == accumulator(query.dtype)
    if wide:
        query = query * inputs.scale  # T·H products in place of T·S
    products = jnp.einsum(
        "...th,...sh->...ts",
        in_groups(query, inputs),
        key,
        precision=inputs.precision,
        preferred_element_type=accumulator(query.dtype),
    )
    products = of_heads(products, inputs)
    return products if wide else products * inputs.scale


def in_groups(x: Array, inputs: Inputs) -> Array:
    """`[*B, N, T, .]` as `[*B, K, G·T, .]`: query head h reads key head h // G."""
    queries, _, heads, key_heads = inputs.sizes
    if heads == key_heads:
        return x
    shape = (*x.shape[:-3], key_heads, heads // key_heads * queries, x.shape[-1])
    return regroup(x, shape)


def of_heads(x: Array, inputs: Inputs) -> Array:
    """`in_groups` backwards."""
    queries, _, heads, key_heads = inputs.sizes
    return x if heads == key_heads else regroup(x, (*x.shape[:-3], heads, queries, x.shape[-1]))


def for_query_heads(x: Array, heads: int, key_heads: int) -> Array:
    """`[.., K, T, S]` with each head G times, `[.., N, T, S]`; 1 or N heads stay."""
    if x.shape[-3] in (1, heads):
        return x
    return jnp.repeat(x, heads // key_heads, axis=-3)


def may_have_padding(inputs: Inputs) -> bool:
    """Whether a token may take no part: not where each attends to itself, or all to all."""
    queries, keys, *_ = inputs.sizes
    counted = inputs.query_positions is None and inputs.key_positions is None
    same = isinstance(queries, int) and queries == keys and inputs.query_offset == 0
    arrays = (inputs.pairs, inputs.bias, inputs.bias_function)
    if not (counted and same) or any(x is not None for x in arrays):
        return True
    return inputs.mask is not None and not inputs.mask.reflexive


def without_padding(
    query: Array, key: Array, value: Array, allowed: Array
) -> tuple[Array, Array, Array]:
    """Zeros for tokens that take no part, so that whatever they hold cannot reach anything.

    Query heads of one group share a key: it takes part where any of them uses it.
    """
    row_used = jnp.any(allowed, axis=-1)[..., None]
    key_used = jnp.any(allowed, axis=-2)
    heads, key_heads = key_used.shape[-2], key.shape[-3]
    if heads > key_heads:
        groups = (*key_used.shape[:-2], key_heads, heads // key_heads, key_used.shape[-1])
        key_used = jnp.any(key_used.reshape(groups), axis=-2)
    key_used = key_used[..., None]
    return jnp.where(row_used, query, 0), jnp.where(key_used, key, 0), jnp.where(key_used, value, 0)


def drop(inputs: Inputs, weights: Array, query_positions: Array, key_positions: Array) -> Array:
    """Weights after dropout: 0, or `weight / (1 - rate)`."""
    if inputs.dropout is None:
        return weights
    heads = jnp.arange(weights.shape[-3])[:, None, None]
    kept = inputs.dropout(heads, query_positions, key_positions)
    return jnp.where(kept, weights * inputs.dropout.gain, 0)
