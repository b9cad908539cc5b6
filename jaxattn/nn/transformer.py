"""A transformer's block: attention, then feed-forward. Letters: see `jaxattn._typing`."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.nn import _checks
from jaxattn.nn.feed_forward import FeedForward, dropout_module
from jaxattn.nn.initial import FAN_IN
from jaxattn.nn.multi_head import MultiHeadAttention
from jaxattn.nn.norm import LayerNorm

Sublayer = Callable[[Array], Array]


def pre_norm(x: Float[Array, "*B T D"], sublayer: Sublayer, norm: Sublayer) -> Array:
    """`x + sublayer(norm(x))`: an open path from input to output (Xiong et al. 2020)."""
    return x + sublayer(norm(x)).astype(x.dtype)


def post_norm(x: Float[Array, "*B T D"], sublayer: Sublayer, norm: Sublayer) -> Array:
    """`norm(x + sublayer(x))`, as the first transformer (Vaswani et al. 2017, section 3.1)."""
    return norm(x + sublayer(x).astype(x.dtype))


ARRANGEMENTS = {"pre": pre_norm, "post": post_norm}


class TransformerBlock(nnx.Module):
    """Self-attention and feed-forward, each with a residual and a normalisation.

        pre:    x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
        post:   x = norm(x + attention(x)),   x = norm(x + feed_forward(x))

    Causal where the call says `mask=Causal()`.

    Args:
      width: D.
      num_heads: N, a divisor of D.
      hidden: width inside the feed-forward; default 4·D.
      num_kv_heads: K, a divisor of N; default N.
      norm: "pre" or "post".
      dropout_rate: share dropped while training of attention weights and of what both
        sublayers add, in [0, 1).
      dtype: of the products; the residual stays in x's dtype, and normalisations run in float32
        or wider.
      param_dtype: of the parameters.
      kernel_init: of all kernels; default variance 1/fan-in.
      out_kernel_init: of both kernels that write into the residual; default `kernel_init`.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError: a size is no integer, or the rate is no number.
      ValueError: heads do not divide, another `norm`, or the rate lies outside [0, 1).

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Causal
      >>> from jaxattn.nn import TransformerBlock
      >>> block = TransformerBlock(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> block(jnp.ones((3, 5, 8), jnp.float32), mask=Causal()).shape
      (3, 5, 8)

    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020, "On layer normalization in the
      transformer architecture".
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        hidden: int | None = None,
        num_kv_heads: int | None = None,
        norm: str = "pre",
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        out_kernel_init: nnx.Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        self.width = width
        self.arrangement = _checks.choice("norm", norm, tuple(ARRANGEMENTS))
        options: dict[str, Any] = dict(
            dropout_rate=dropout_rate,
            dtype=dtype,
            param_dtype=param_dtype,
            kernel_init=kernel_init,
            out_kernel_init=out_kernel_init,
            rngs=rngs,
        )
        self.attention = MultiHeadAttention(num_heads, width, num_kv_heads=num_kv_heads, **options)
        self.feed_forward = FeedForward(width, hidden, **options)
        self.attention_norm = LayerNorm(width, param_dtype=param_dtype)
        self.feed_forward_norm = LayerNorm(width, param_dtype=param_dtype)
        self.dropout = dropout_module(dropout_rate, rngs)

    def __call__(
        self,
        x: Float[Array, "*B T D"],
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D] -> [*B, T, D]`.

        Args:
          x: `[*B, T, D]`.
          mask: as in `jaxattn.attention`, for T = S.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.
        """
        x = _checks.tokens_of_width("x", x, self.width, "width")
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)

        def attend(x: Array) -> Array:
            return self.dropout(self.attention(x, mask=mask, **options), **options)

        def feed_forward(x: Array) -> Array:
            return self.feed_forward(x, **options)

        add = ARRANGEMENTS[self.arrangement]
        x = add(x, attend, self.attention_norm)
        return add(x, feed_forward, self.feed_forward_norm)
