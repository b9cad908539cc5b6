"""Attentions of recurrent decoders: one query at a time reads a source whose keys stay.

Both have the same three methods. Letters: see `jaxattn._typing`; A is the width in which queries
and keys meet, E the width of keys.
"""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import (
    additive_attention,
    additive_scores,
    multiplicative_attention,
    multiplicative_scores,
    project,
)
from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN


class AdditiveAttention(nnx.Module):
    """Additive attention: `softmax_j(v · tanh(W q_i + U k_j)) value_j`.

    The function `jaxattn.additive_attention`, with `w_query` `[D, A]`, `w_key` `[E, A]` and
    `vector` `[A]` as parameters.

    Args:
      query_features: D.
      key_features: E; default D.
      hidden: A; default D.
      param_dtype: of the parameters; input must have it too.
      kernel_init: initializer of the matrices; default variance 1/fan-in.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Lengths
      >>> from jaxattn.nn import AdditiveAttention
      >>> layer = AdditiveAttention(8, 6, rngs=nnx.Rngs(0))
      >>> query, key = jnp.ones((2, 5, 8), jnp.float32), jnp.ones((2, 7, 6), jnp.float32)
      >>> layer(query, key, mask=Lengths(key=jnp.array([7, 3]))).shape
      (2, 5, 6)

    Source: Bahdanau, Cho and Bengio 2014, appendix A.1.2.
    """

    def __init__(
        self,
        query_features: int,
        key_features: int | None = None,
        hidden: int | None = None,
        *,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        rngs: nnx.Rngs,
    ):
        key_features = query_features if key_features is None else key_features
        hidden = query_features if hidden is None else hidden
        _checks.positive(query_features=query_features, key_features=key_features, hidden=hidden)
        self.w_query = nnx.Param(kernel_init(rngs.params(), (query_features, hidden), param_dtype))
        self.w_key = nnx.Param(kernel_init(rngs.params(), (key_features, hidden), param_dtype))
        self.vector = nnx.Param(kernel_init(rngs.params(), (hidden, 1), param_dtype)[:, 0])

    def __call__(
        self,
        query: Float[Array, "*B T D"],
        key: Float[Array, "*B S E"],
        value: Float[Array, "*B S Hv"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
    ) -> Float[Array, "*B T Hv"]:
        """`[*B, T, D]`, `[*B, S, E]` -> `[*B, T, Hv]`; value defaults to the keys."""
        parameters = (self.w_query[...], self.w_key[...], self.vector[...])
        value = key if value is None else value
        return additive_attention(query, key, value, *parameters, mask=mask)

    def keys(self, key: Float[Array, "*B S E"]) -> Float[Array, "*B S A"]:
        """U k: what `scores` wants, once for all queries."""
        return project(key, self.w_key[...])

    def scores(
        self, query: Float[Array, "*B T D"], keys: Float[Array, "*B S A"]
    ) -> Float[Array, "*B T S"]:
        """Scores of queries with the result of `keys`."""
        return additive_scores(project(query, self.w_query[...]), keys, self.vector[...])


class MultiplicativeAttention(nnx.Module):
    """Multiplicative attention: `softmax_j(q_i W · k_j) value_j`.

    The function `jaxattn.multiplicative_attention`, with `weight` `[D, E]` as parameter.

    Args:
      query_features: D.
      key_features: E; default D.
      param_dtype: of the matrix; input must have it too.
      kernel_init: initializer of the matrix; default variance 1/D.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import MultiplicativeAttention
      >>> layer = MultiplicativeAttention(8, 6, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((2, 5, 8), jnp.float32), jnp.ones((2, 7, 6), jnp.float32)).shape
      (2, 5, 6)

    Source: Luong, Pham and Manning 2015, section 3.1 ("general").
    """

    def __init__(
        self,
        query_features: int,
        key_features: int | None = None,
        *,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        rngs: nnx.Rngs,
    ):
        key_features = query_features if key_features is None else key_features
        _checks.positive(query_features=query_features, key_features=key_features)
        shape = (query_features, key_features)
        self.weight = nnx.Param(kernel_init(rngs.params(), shape, param_dtype))

    def __call__(
        self,
        query: Float[Array, "*B T D"],
        key: Float[Array, "*B S E"],
        value: Float[Array, "*B S Hv"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
    ) -> Float[Array, "*B T Hv"]:
        """`[*B, T, D]`, `[*B, S, E]` -> `[*B, T, Hv]`; value defaults to the keys."""
        value = key if value is None else value
        return multiplicative_attention(query, key, value, self.weight[...], mask=mask)

    def keys(self, key: Float[Array, "*B S E"]) -> Float[Array, "*B S E"]:
        """The keys themselves: the matrix is the query's."""
        return key

    def scores(
        self, query: Float[Array, "*B T D"], keys: Float[Array, "*B S E"]
    ) -> Float[Array, "*B T S"]:
        """Scores of queries with the result of `keys`."""
        return multiplicative_scores(query, keys, self.weight[...])
