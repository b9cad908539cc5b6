"""The usual block of a transformer. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn.nn import _checks
from jaxattn.nn.attention_options import Projections
from jaxattn.nn.feed_forward import FeedForward
from jaxattn.nn.initial import FAN_IN
from jaxattn.nn.multi_head import MultiHeadAttention
from jaxattn.nn.norm import LayerNorm
from jaxattn.nn.residual import ResidualBlock
from jaxattn.nn.sublayer import ARRANGEMENTS


class TransformerBlock(ResidualBlock):
    """Self-attention and feed-forward, each with a residual and a LayerNorm.

    `ResidualBlock` with the modules that most need; causal where the call says `mask=Causal()`.

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
        _checks.choice("norm", norm, tuple(ARRANGEMENTS))
        options: dict[str, Any] = dict(
            dropout_rate=dropout_rate, dtype=dtype, param_dtype=param_dtype, rngs=rngs
        )
        inits: dict[str, Any] = dict(kernel_init=kernel_init, out_kernel_init=out_kernel_init)
        attention = MultiHeadAttention(
            num_heads,
            width,
            num_kv_heads=num_kv_heads,
            projections=Projections(**inits),
            **options,
        )
        super().__init__(
            attention,
            FeedForward(width, hidden, **inits, **options),
            norm=norm,
            make_norm=lambda width: LayerNorm(width, param_dtype=param_dtype),
            dropout_rate=dropout_rate,
            rngs=rngs,
        )
