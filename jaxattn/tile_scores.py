"""One tile of scores, in the dense definition's order: scale, softcap, score_mod, bias, mask.

Letters: see `jaxattn._typing`; t and s are the sizes of the tile, and `*b` are the batch axes of
a step (none where examples are looped over).
"""

import functools
import operator
from typing import NamedTuple

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, ScoreMod
from jaxattn.dense import for_query_heads
from jaxattn.products import score_products
from jaxattn.scores import modify, soft_cap
from jaxattn.steps import Step, Tile


class Scored(NamedTuple):
    """Scores `[*b, N, t, s]`, the pairs that count (None for all), and values `[*b, K, Hv, s]`."""

    scores: Array
    allowed: Array | None
    value: Array


def score_tile(step: Step, tile: Tile, mixed: bool) -> Scored:
    """Scores of a tile; a mixed one is masked, and tokens that it has no use for are zeroed."""
    bias = step.bias_tile(tile)
    allowed = allowed_pairs(step, tile, bias) if mixed else None
    query, key, value = step.query, tile.key, tile.value
    if allowed is not None and step.padding:
        query, key, value = without_padding(query, key, value, allowed)
    wide = accumulator(query.dtype)
    scores = scaled_scores(query, key, step, wide)
    softcap, score_mod = step.inputs.softcap, step.inputs.score_mod
    if allowed is not None and not (softcap is None and score_mod is None):
        scores = jnp.where(allowed, scores, 0)
    if softcap is not None:
        scores = soft_cap(scores, softcap)
    if score_mod is not None:
        scores, allowed = modified(score_mod, step, tile, scores, allowed)
    if bias is not None:
        scores = scores + bias.astype(wide)
    if allowed is not None:
        allowed = jnp.broadcast_to(allowed, scores.shape)
    return Scored(scores, allowed, value)


def scaled_scores(query: Array, key: Array, step: Step, wide: jnp.dtype) -> Array:
    """`σ Q Kᵀ`; a query as wide as the sums is scaled first, or has been: see `scaled_query`."""
    if query.dtype != wide:
        return step.inputs.scale * score_products(query, key, step, wide)
    query = query * step.inputs.scale if step.padding else query
    return score_products(query, key, step, wide)


def modified(
    score_mod: ScoreMod, step: Step, tile: Tile, scores: Array, allowed: Array | None
) -> tuple[Array, Array]:
    """Scores after `score_mod`; those that it sends to -inf are out."""
    scores = modify(score_mod, scores, step.positions, tile.positions)
    finite = scores != -jnp.inf
    return scores, finite if allowed is None else allowed & finite


def allowed_pairs(step: Step, tile: Tile, bias: Array | None) -> Array:
    """Who may attend to whom in this tile, with broadcasting ones."""
    parts = [step.positions >= 0, tile.positions >= 0]
    if step.inputs.mask is not None:
        allowed = step.inputs.mask(step.positions, tile.positions)
        allowed = _validate.pair_result("mask", allowed, *step.sizes)
        parts.append(for_query_heads(allowed, *step.sizes[1]))
    if tile.pairs is not None:
        parts.append(tile.pairs)
    if bias is not None:
        parts.append(bias != -jnp.inf)
    return functools.reduce(operator.and_, parts)


def without_padding(
    query: Array, key: Array, value: Array, allowed: Array
) -> tuple[Array, Array, Array]:
    """Zeros for tokens of this tile that take no part in it."""
    row_used = jnp.any(allowed, axis=-1)[..., None]
    key_used = jnp.any(allowed, axis=-2)
    groups = key.shape[-3]
    if key_used.shape[-2] != groups:
        # Query heads of one group share a key: it counts where any of them uses it.
        shape = (*key_used.shape[:-2], min(groups, key_used.shape[-2]), -1, key_used.shape[-1])
        key_used = jnp.any(key_used.reshape(shape), axis=-2)
    key_used = key_used[..., None, :]
    return jnp.where(row_used, query, 0), jnp.where(key_used, key, 0), jnp.where(key_used, value, 0)


def dropped(step: Step, tile: Tile, weights: Array) -> Array:
    """Weights after dropout."""
    dropout = step.inputs.dropout
    if dropout is None:
        return weights
    kept = dropout(step.heads, step.positions, tile.positions)
    return jnp.where(kept, weights * dropout.gain, 0)
