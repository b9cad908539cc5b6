"""Drop-ins with the signatures of others, and this library's semantics.

    dot_product_attention    jax.nn.dot_product_attention
    linen_attention          attention_fn of flax.linen.MultiHeadDotProductAttention
    nnx_attention            attention_fn of flax.nnx.MultiHeadAttention

Where the others' answers differ from the contract (README, "Semantics"), the contract holds: a row
with nothing to attend to is 0, sums run in float32 or wider, dropout is independent for examples
and heads, float masks raise, and order between T ≠ S tokens must be said. Letters: see
`jaxattn._typing`.
"""

import functools
import operator
from typing import Any

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Bool, Float, Int, Precision, PRNGKey
from jaxattn.dispatch import attention, attention_with_weights, partial_attention
from jaxattn.masks import Causal, Dense, Lengths, Mask, SlidingWindow


def dot_product_attention(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Int[Array, "B"] | None = None,
    key_value_seq_lengths: Int[Array, "B"] | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """`jax.nn.dot_product_attention`, with every derivative and the contract's semantics.

    Args:
      query: `[B, T, N, H]` or `[T, N, H]`, or any other number of batch axes.
      key: `[B, S, K, H]`, likewise.
      value: `[B, S, K, Hv]`, likewise; Hv need not be H.
      bias: floating, broadcasts to `[B, N, T, S]` from the right.
      mask: boolean, likewise.
      scale: default 1/√H.
      is_causal: no look into the future; T = S.
      query_seq_lengths: integers `[B]`; queries from there on give 0.
      key_value_seq_lengths: integers `[B]`; keys from there on take no part.
      local_window_size: how far a query sees, (left, right), or one number for both; T = S.
      implementation: None or "xla" lets this library choose; other names are its own.
      return_residual: whether the logsumexp `[B, T, N]` is returned too, in float32 or wider.

    Returns:
      `[B, T, N, Hv]` in query's dtype, or a pair.

    Raises: as `jaxattn.attention`.

    Example:
      >>> import jax
      >>> from jaxattn.compat import dot_product_attention
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 2, 5, 4, 8))
      >>> dot_product_attention(query, key, value, is_causal=True).shape
      (2, 5, 4, 8)

    Source: the documentation of jax.nn.
    """
    rank = jnp.ndim(query)
    lengths = Lengths(query=query_seq_lengths, key=key_value_seq_lengths)
    some = query_seq_lengths is not None or key_value_seq_lengths is not None
    parts: list[Mask] = [lengths] if some else []
    parts += _order(query, key, is_causal, local_window_size)
    options: dict[str, Any] = dict(
        mask=_one_mask(_pairs(mask, rank), parts, query, key),
        bias=_pairs(bias, rank),
        scale=scale,
        implementation=None if implementation == "xla" else implementation,
    )
    if not return_residual:
        return attention(query, key, value, **options)
    out, lse = partial_attention(query, key, value, **options)
    return out.astype(jnp.asarray(query).dtype), lse


def linen_attention(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: PRNGKey | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Precision = None,
    module: Any = None,
    force_fp32_for_softmax: bool = False,
    einsum_dot_general: Any = None,
    qk_attn_weights_einsum: Any = None,
    attn_weights_value_einsum: Any = None,
) -> Float[Array, "*B T N Hv"]:
    """`flax.linen.dot_product_attention`, for `MultiHeadDotProductAttention(attention_fn=...)`.

    Args:
      query: `[*B, T, N, H]`.
      key: `[*B, S, K, H]`; K may divide N.
      value: `[*B, S, K, Hv]`.
      bias: floating, broadcasts to `[*B, N, T, S]` from the right.
      mask: boolean, likewise. Flax's mask makers give floats: call them with `dtype=bool`.
      broadcast_dropout: without effect: dropout is independent for examples and heads.
      dropout_rng: a key, where something is dropped.
      dropout_rate: share of weights dropped, in [0, 1).
      deterministic: True drops nothing.
      dtype: of the computation; default that of all arrays together.
      precision: of both products.
      module: where `attention_weights` are sown, for a Linen module.
      force_fp32_for_softmax: without effect: it always is float32 or wider.
      einsum_dot_general, qk_attn_weights_einsum, attn_weights_value_einsum: must be None.

    Returns:
      `[*B, T, N, Hv]`.

    Raises:
      ValueError: a function for the products was given; else as `jaxattn.attention`.

    Example:
      >>> import flax.linen as nn
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from jaxattn.compat import linen_attention
      >>> layer = nn.MultiHeadDotProductAttention(num_heads=2, attention_fn=linen_attention)
      >>> x = jnp.ones((1, 3, 8), jnp.float32)
      >>> layer.apply(layer.init(jax.random.key(0), x), x).shape
      (1, 3, 8)

    Source: the documentation of flax.linen.
    """
    einsums = (einsum_dot_general, qk_attn_weights_einsum, attn_weights_value_einsum)
    if any(given is not None for given in einsums):
        raise ValueError(
            "einsum_dot_general, qk_attn_weights_einsum and attn_weights_value_einsum must be "
            "None: this attention computes its products itself; precision= is honoured"
        )
    dropout = _dropout(dropout_rng, dropout_rate, deterministic)
    arrays = _promoted(dtype, query, key, value)
    rank = arrays[0].ndim
    options = dict(mask=_pairs(mask, rank), bias=_pairs(bias, rank), precision=precision, **dropout)
    if module is None:
        return attention(*arrays, **options)
    out, weights = attention_with_weights(*arrays, **options)
    module.sow("intermediates", "attention_weights", weights)
    return out


def nnx_attention(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    bias: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: PRNGKey | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Precision = None,
    module: Any = None,
    promote_dtype: Any = None,
    is_causal: bool = False,
) -> Float[Array, "*B T N Hv"]:
    """`flax.nnx.dot_product_attention`, for `flax.nnx.MultiHeadAttention(attention_fn=...)`.

    Args:
      promote_dtype: without effect: arrays are promoted to one dtype, as Flax does by default.
      is_causal: no look into the future; T = S.
      The others are those of `linen_attention`, with `module` an NNX one.

    Returns:
      `[*B, T, N, Hv]`.

    Raises: as `jaxattn.attention`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.compat import nnx_attention
      >>> layer = nnx.MultiHeadAttention(
      ...     2, 8, attention_fn=nnx_attention, decode=False, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((1, 3, 8), jnp.float32)).shape
      (1, 3, 8)

    Source: the documentation of flax.nnx.
    """
    arrays = _promoted(dtype, query, key, value)
    rank = arrays[0].ndim
    options: dict[str, Any] = dict(
        mask=_one_mask(_pairs(mask, rank), _order(query, key, is_causal, None), query, key),
        bias=_pairs(bias, rank),
        precision=precision,
        **_dropout(dropout_rng, dropout_rate, deterministic),
    )
    if module is None:
        return attention(*arrays, **options)
    from flax import nnx  # here, since importing jaxattn loads no Flax

    out, weights = attention_with_weights(*arrays, **options)
    module.sow(nnx.Intermediate, "attention_weights", weights)
    return out


def _order(query: Any, key: Any, is_causal: bool, window: Any) -> list[Mask]:
    """Masks of order, for T = S."""
    parts: list[Mask] = [Causal()] if is_causal else []
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        parts.append(SlidingWindow(left, right))
    queries, keys = jnp.shape(query)[-3:-2], jnp.shape(key)[-3:-2]
    if parts and queries != keys:
        raise ValueError(
            f"is_causal and local_window_size compare positions, and T = {queries[0]} queries "
            f"against S = {keys[0]} keys can be aligned in two ways; use jaxattn.attention with "
            'mask=Causal(align="start"), as jax.nn does it, or align="end", for decoding'
        )
    return parts


def _pairs(x: Any, rank: int) -> Any:
    """An array over pairs with axes of 1 in front, as broadcasting would add them."""
    if x is None:
        return None
    x = _validate.array("mask or bias", x, "[*B, N, T, S]")
    return jnp.expand_dims(x, tuple(range(rank - x.ndim)))


def _one_mask(mask: Any, parts: list[Mask], query: Any, key: Any) -> Any:
    """The array and all masks."""
    if not parts:
        return mask
    if mask is not None:
        mask = _validate.boolean_mask(mask, "[*B, N, T, S]")
        sizes = (*mask.shape[:-2], jnp.shape(query)[-3], jnp.shape(key)[-3])
        parts = [*parts, Dense(jnp.broadcast_to(mask, sizes))]
    return functools.reduce(operator.and_, parts)


def _dropout(key: Any, rate: float, deterministic: bool) -> dict[str, Any]:
    return {} if deterministic or rate == 0 else dict(dropout_rate=rate, dropout_key=key)


def _promoted(dtype: Any, *arrays: Any) -> list[Array]:
    """Arrays of one dtype."""
    dtype = jnp.result_type(*arrays) if dtype is None else dtype
    return [jnp.asarray(x).astype(dtype) for x in arrays]
