"""Additive attention: a small network says how much a query asks for a key.

The first attention (2014). Letters: see `jaxattn._typing`; A is the width of the network, E that
of keys.
"""

from typing import Any

import jax.numpy as jnp

from jaxattn import _one_head, _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.projection import project


def additive_scores(
    query: Float[Array, "*B T A"], key: Float[Array, "*B S A"], vector: Float[Array, "A"]
) -> Float[Array, "*B T S"]:
    """Scores of projected queries and keys: `e_ij = v · tanh(q_i + k_j)`.

    Args:
      query: W q, `[*B, T, A]`.
      key: U k, `[*B, S, A]`; it may be projected once for many queries.
      vector: v, `[A]`.

    Returns:
      `[*B, T, S]`, float32 or wider. It takes memory for T·S·A numbers.

    Raises:
      TypeError: an argument is no floating array, or dtypes are mixed.
      ValueError: A or the batch axes differ.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from jaxattn import additive_scores
      >>> query, key = jnp.array([[0.5]]), jnp.array([[0.0], [1.0]])
      >>> print(np.array(additive_scores(query, key, jnp.array([2.0]))).round(3))
      [[0.924 1.81 ]]

    Source: Bahdanau, Cho and Bengio 2014, appendix A.1.2.
    """
    query, key = _one_head.tokens(query=query, key=key)
    hint = "project both into the A features of v first"
    _validate.equal_axis({"query": query.shape[-1], "key": key.shape[-1]}, "A", hint)
    vector = _one_head.vector("vector", vector, query.shape[-1], query)
    wide = accumulator(query.dtype)
    hidden = jnp.tanh(query.astype(wide)[..., :, None, :] + key.astype(wide)[..., None, :, :])
    return jnp.matmul(hidden, vector.astype(wide))


def additive_attention(
    query: Float[Array, "*B T D"],
    key: Float[Array, "*B S E"],
    value: Float[Array, "*B S Hv"],
    w_query: Float[Array, "D A"],
    w_key: Float[Array, "E A"],
    vector: Float[Array, "A"],
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
) -> Float[Array, "*B T Hv"]:
    """Attention with additive scores.

        e_ij = v · tanh(W q_i + U k_j),   out_i = Σ_j softmax_j(e_ij) value_j

    `additive_scores`, `attention_weights` and `weighted_sum` are its steps.

    Args:
      query: `[*B, T, D]`.
      key: `[*B, S, E]`.
      value: `[*B, S, Hv]`; often the keys themselves.
      w_query: W, `[D, A]`.
      w_key: U, `[E, A]`.
      vector: v, `[A]`.
      mask: True takes part: boolean `[T, S]` or `[*B, T, S]`, or a `jaxattn.masks.Mask` of
        default positions (`Lengths(key=lengths)` for padded keys).

    Returns:
      `[*B, T, Hv]` in query's dtype; a row with nothing to attend to is 0, and tokens that take
      no part change nothing, NaN in them included.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import additive_attention
      >>> states = jnp.ones((7, 4))
      >>> weights = jnp.ones((3, 5)), jnp.ones((4, 5)), jnp.ones(5)
      >>> additive_attention(jnp.ones((2, 3)), states, states, *weights).shape
      (2, 4)

    Source: Bahdanau, Cho and Bengio 2014, equations 5 and 6.
    """
    query, key, value = _one_head.tokens(query=query, key=key, value=value)
    _one_head.key_and_value(key, value)
    allowed: Any = _one_head.allowed_pairs(mask, query, key)
    query, key, value = _one_head.without_padding(allowed, query, key, value)
    scores = additive_scores(project(query, w_query), project(key, w_key), vector)
    return _one_head.weigh(scores, allowed, value)
