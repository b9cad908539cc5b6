"""Scores: how much query i asks for key j, before the softmax.

The order of operations on a score is fixed: scale, softcap, `score_mod`, bias; then the mask.
Letters: see `jaxattn._typing`.
"""

import math
from typing import Any

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator, as_dtype
from jaxattn._typing import Array, Float, Precision, ScoreMod


def attention_scores(
    query: Float[Array, "*B T H"],
    key: Float[Array, "*B S H"],
    scale: float | Float[Array, "..."] | None = None,
    *,
    precision: Precision = None,
) -> Float[Array, "*B T S"]:
    """Scaled scores of one head: `Ω = Q Kᵀ / √H`, in float32 or wider.

    Args:
      query: `[..., T, H]`.
      key: `[..., S, H]`; leading axes broadcast against the query's.
      scale: what multiplies `Q Kᵀ`: a number, or an array that broadcasts against
        `[..., T, S]`. Default 1/√H, and 1 for H = 0.
      precision: as in `jax.lax.dot_general`.

    Returns:
      `[..., T, S]`, float32, or float64 for float64 input.

    Raises:
      TypeError: an argument is no floating array, or dtypes are mixed.
      ValueError: H differs, or there are fewer than two axes.

    Example:
      One query [2] and the keys [2] and [1], H = 1:

      >>> import jax.numpy as jnp
      >>> from jaxattn import attention_scores
      >>> print(attention_scores(jnp.array([[2.0]]), jnp.array([[2.0], [1.0]])))
      [[4. 2.]]

    Source: Vaswani et al. 2017, equation 1.
    """
    query, key = _validate.query_and_key(query, key)
    wide = accumulator(query.dtype)
    transposed = jnp.swapaxes(key, -1, -2)
    scores = jnp.matmul(query, transposed, precision=precision, preferred_element_type=wide)
    return scores * as_dtype(default_scale(query.shape[-1]) if scale is None else scale, wide)


def default_scale(head_size: int) -> float:
    """`1/√H`, and 1 for H = 0, where every score is an empty sum."""
    return 1.0 / math.sqrt(head_size) if head_size else 1.0


def soft_cap(
    scores: Float[Array, "*B T S"], cap: float | Float[Array, "..."]
) -> Float[Array, "*B T S"]:
    """Bound scores smoothly to ±cap: `cap · tanh(s / cap)` (Gemma 2, section 2)."""
    cap = as_dtype(cap, scores.dtype)
    return cap * jnp.tanh(scores / cap)


def modify(
    score_mod: ScoreMod, scores: Float[Array, "..."], query_positions: Any, key_positions: Any
) -> Float[Array, "..."]:
    """Apply the user's `score_mod`, and hold it to its contract: same shape, real floats."""
    modified = score_mod(scores, query_positions, key_positions)
    _validate.score_mod_result(modified, scores)
    return jnp.asarray(modified).astype(scores.dtype)
