"""The other half of a block: each token by itself. Letters: see `jaxattn._typing`."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN


class FeedForward(nnx.Module):
    """Two layers for each token: `dropout(φ(X W_1 + b_1) W_2 + b_2)`.

    Gated, `φ(X W_g + b_g) ∘ (X W_1 + b_1)` comes before W_2: with SiLU it is SwiGLU.

    Args:
      width: D, of input and output.
      hidden: width in between; default 4·D.
      activation: φ, elementwise: default GELU (by tanh), else for example `jax.nn.relu`.
      gated: whether there is a gate, with parameters `gate`.
      use_bias: whether the layers have a bias.
      dropout_rate: share of outputs dropped while training, in [0, 1).
      dtype: of the computation; default that of input and parameters together.
      param_dtype: of the parameters.
      kernel_init: of both kernels; default variance 1/fan-in.
      out_kernel_init: of the second kernel; default `kernel_init`.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError, ValueError: a size is no positive integer, or the rate lies outside [0, 1).

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import FeedForward
      >>> FeedForward(8, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 8), jnp.float32)).shape
      (2, 5, 8)

    Source: Vaswani et al. 2017, section 3.3; Hendrycks and Gimpel 2016 (GELU); Shazeer 2020, "GLU
      variants improve transformer", equation 6 (gated).
    """

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        activation: Callable[[Array], Array] = nnx.gelu,
        gated: bool = False,
        use_bias: bool = True,
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        out_kernel_init: nnx.Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        hidden = 4 * width if hidden is None else hidden
        _checks.positive(width=width, hidden=hidden)
        out_init = kernel_init if out_kernel_init is None else out_kernel_init
        options: dict[str, Any] = dict(
            use_bias=use_bias, dtype=dtype, param_dtype=param_dtype, rngs=rngs
        )
        self.activation = activation
        self.hidden = nnx.Linear(width, hidden, kernel_init=kernel_init, **options)
        self.out = nnx.Linear(hidden, width, kernel_init=out_init, **options)
        self.gate = nnx.data(None)
        if gated:
            self.gate = nnx.Linear(width, hidden, kernel_init=kernel_init, **options)
        self.dropout = dropout_module(dropout_rate, rngs)

    def __call__(
        self,
        x: Float[Array, "*B T D"],
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D] -> [*B, T, D]`; `deterministic` and `rngs` come before the module's own."""
        x = _checks.tokens_of_width("x", x, self.hidden.in_features, "width")
        if self.gate is None:
            x = self.out(self.activation(self.hidden(x)))
        else:
            x = self.out(gate(self.activation(self.gate(x)), self.hidden(x)))
        return self.dropout(x, deterministic=deterministic, rngs=rngs)


def gate(gates: Float[Array, "*B T F"], x: Float[Array, "*B T F"]) -> Float[Array, "*B T F"]:
    """`g ∘ x`: each feature passes as far as its gate is open."""
    return gates * x


def dropout_module(rate: float, rngs: nnx.Rngs | None) -> nnx.Dropout:
    """Dropout of features, which asks for `train()` or `eval()` where its rate is above 0."""
    rate = _validate.rate("dropout_rate", rate)
    undecided = None if rate > 0 else True
    return nnx.Dropout(rate, deterministic=undecided, rngs=rngs if rate > 0 else None)
