"""One head from X to C, every step of the path in order.

Letters: see `jaxattn._typing`.
"""

from typing import Any

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.masks._base import alignment_offset
from jaxattn.projection import project
from jaxattn.scores import attention_scores
from jaxattn.softmax import attention_weights, weighted_sum


def self_attention(
    x: Float[Array, "*B T D"],
    w_query: Float[Array, "D H"],
    w_key: Float[Array, "D H"],
    w_value: Float[Array, "D Hv"],
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
    scale: float | Float[Array, ""] | None = None,
) -> Float[Array, "*B T Hv"]:
    """One head of self-attention: `C = softmax((X W_q)(X W_k)ᵀ / √H) X W_v`.

    Args:
      x: `[*B, T, D]`.
      w_query: `[D, H]`.
      w_key: `[D, H]`.
      w_value: `[D, Hv]`.
      mask: boolean `[T, S]` or `[*B, T, S]`, True takes part, or a `jaxattn.masks.Mask` without
        batched arrays.
      scale: default 1/√H.

    Returns:
      `[*B, T, Hv]` in x's dtype; a row with nothing to attend to is 0.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import self_attention
      >>> self_attention(jnp.ones((5, 4)), *[jnp.ones((4, 3))] * 3).shape
      (5, 3)

    Source: Vaswani et al. 2017, section 3.2.
    """
    return cross_attention(x, x, w_query, w_key, w_value, mask=mask, scale=scale)


def cross_attention(
    x: Float[Array, "*B T D"],
    context: Float[Array, "*B S E"],
    w_query: Float[Array, "D H"],
    w_key: Float[Array, "E H"],
    w_value: Float[Array, "E Hv"],
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
    scale: float | Float[Array, ""] | None = None,
) -> Float[Array, "*B T Hv"]:
    """One head of cross-attention: queries from x, keys and values from a context.

        C = softmax((X W_q)(Y W_k)ᵀ / √H) Y W_v

    Args:
      x: `[*B, T, D]`.
      context: Y, `[*B, S, E]`; E any width.
      w_query: `[D, H]`.
      w_key: `[E, H]`.
      w_value: `[E, Hv]`.
      mask: as in `self_attention`; an order mask needs `align` where T ≠ S.
      scale: default 1/√H.

    Returns:
      `[*B, T, Hv]` in x's dtype; a row with nothing to attend to is 0.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import cross_attention
      >>> weights = [jnp.ones((4, 3)), jnp.ones((2, 3)), jnp.ones((2, 6))]
      >>> cross_attention(jnp.ones((5, 4)), jnp.ones((7, 2)), *weights).shape
      (5, 6)

    Source: Vaswani et al. 2017, section 3.2.3.
    """
    query, key, value = project(x, w_query), project(context, w_key), project(context, w_value)
    scores = attention_scores(query, key, scale)
    weights = attention_weights(scores, mask_array(mask, scores))
    return weighted_sum(weights, value).astype(query.dtype)


def mask_array(mask: Mask | Any, scores: Float[Array, "*B T S"]) -> Bool[Array, "T S"] | None:
    """A `Mask` at default positions as an array `[T, S]`; a boolean array as it is."""
    if mask is None:
        return None
    if not isinstance(mask, Mask):
        return _validate.boolean_mask(mask, "[T, S] or [*B, T, S]")
    queries, keys = scores.shape[-2:]
    mask.check((), queries + alignment_offset(mask, queries, keys), keys)
    return jnp.asarray(mask.dense(queries, keys))
