"""Multiplicative attention: a query asks for a key by a product, with a matrix or with none.

Letters: see `jaxattn._typing`; E is the width of keys.
"""

from typing import Any

from jaxattn import _one_head
from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.projection import project
from jaxattn.scores import attention_scores


def multiplicative_scores(
    query: Float[Array, "*B T D"],
    key: Float[Array, "*B S E"],
    weight: Float[Array, "D E"] | None = None,
) -> Float[Array, "*B T S"]:
    """Scores by a product, not scaled: `e_ij = q_i W · k_j`, or `q_i · k_j` without a matrix.

    Args:
      query: `[*B, T, D]`.
      key: `[*B, S, E]`; without a matrix D = E.
      weight: W, `[D, E]` (Luong's "general"), or None (his "dot").

    Returns:
      `[*B, T, S]`, float32 or wider.

    Raises:
      TypeError: an argument is no floating array, or dtypes are mixed.
      ValueError: D, E or the batch axes do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import multiplicative_scores
      >>> print(multiplicative_scores(jnp.array([[2.0]]), jnp.array([[2.0], [1.0]])))
      [[4. 2.]]

    Source: Luong, Pham and Manning 2015, section 3.1.
    """
    query, key = _one_head.tokens(query=query, key=key)
    query = query if weight is None else project(query, weight)
    return attention_scores(query, key, scale=1.0)


def multiplicative_attention(
    query: Float[Array, "*B T D"],
    key: Float[Array, "*B S E"],
    value: Float[Array, "*B S Hv"],
    weight: Float[Array, "D E"] | None = None,
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
) -> Float[Array, "*B T Hv"]:
    """Attention with multiplicative scores: `out_i = Σ_j softmax_j(q_i W · k_j) value_j`.

    With one array of embeddings in all three places and no matrix it has no parameters at all,
    `softmax(X Xᵀ) X`: each word becomes a mixture of the words that resemble it, the first step
    from embeddings to attention.

    Args:
      query: `[*B, T, D]`.
      key: `[*B, S, E]`; without a matrix D = E.
      value: `[*B, S, Hv]`; often the keys themselves.
      weight: W, `[D, E]`, or None.
      mask: True takes part: boolean `[T, S]` or `[*B, T, S]`, or a `jaxattn.masks.Mask` of
        default positions.

    Returns:
      `[*B, T, Hv]` in query's dtype; a row with nothing to attend to is 0, and tokens that take
      no part change nothing, NaN in them included.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit.

    Example:
      Two words that point the same way and one that does not:

      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from jaxattn import multiplicative_attention
      >>> words = jnp.array([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
      >>> print(np.array(multiplicative_attention(words, words, words)).round(2))
      [[1.98 0.02]
       [1.98 0.02]
       [0.07 1.93]]

    Source: Luong, Pham and Manning 2015, section 3.1.
    """
    query, key, value = _one_head.tokens(query=query, key=key, value=value)
    _one_head.key_and_value(key, value)
    allowed: Any = _one_head.allowed_pairs(mask, query, key)
    query, key, value = _one_head.without_padding(allowed, query, key, value)
    return _one_head.weigh(multiplicative_scores(query, key, weight), allowed, value)
