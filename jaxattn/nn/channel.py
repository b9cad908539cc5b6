"""Squeeze-and-excitation as a module. Letters: see `jaxattn._typing`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate, channel_attention
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks


class SqueezeExcitation(nnx.Module):
    """Channel attention for images: `x ∘ gate(activation(mean(x) W_1 + b_1) W_2 + b_2)`.

    The function `jaxattn.channel_attention`; `reduce` and `expand` are two `nnx.Linear`.

    Args:
      features: D, the channels.
      reduction: the layer in between has D / reduction channels; must divide D.
      activation: elementwise, in between.
      gate: elementwise, at the end: `jax.nn.sigmoid`, or `jaxattn.hard_sigmoid`.
      use_bias: whether both layers have a bias.
      param_dtype: of the parameters; input must have it too.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: the reduction does not divide the channels.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import SqueezeExcitation
      >>> block = SqueezeExcitation(8, reduction=4, rngs=nnx.Rngs(0))
      >>> block(jnp.ones((2, 5, 6, 8), jnp.float32)).shape
      (2, 5, 6, 8)

    Source: Hu, Shen and Sun 2018, "Squeeze-and-excitation networks".
    """

    def __init__(
        self,
        features: int,
        reduction: int = 16,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        gate: Callable[[Array], Array] = jax.nn.sigmoid,
        use_bias: bool = True,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        why = "the layer in between has D / reduction channels"
        _checks.divides("reduction", reduction, "features", features, why)
        options: dict[str, Any] = dict(use_bias=use_bias, param_dtype=param_dtype, rngs=rngs)
        self.activation, self.gate = activation, gate
        self.reduce = nnx.Linear(features, features // reduction, **options)
        self.expand = nnx.Linear(features // reduction, features, **options)

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width D"]:
        """`[*B, height, width, D] -> [*B, height, width, D]`."""
        tokens = flattened(x, self.reduce.in_features, "features")
        out = channel_attention(
            tokens,
            self.reduce.kernel[...],
            self.expand.kernel[...],
            *(None if layer.bias is None else layer.bias[...] for layer in self._layers()),
            activation=self.activation,
            gate=self.gate,
        )
        return out.reshape(x.shape)

    def _layers(self) -> tuple[nnx.Linear, nnx.Linear]:
        return self.reduce, self.expand


def flattened(x: Any, features: int, argument: str) -> Float[Array, "*B T D"]:
    """An image `[*B, height, width, D]` as tokens, row by row, with the D of the module."""
    letters = "[*B, height, width, D]"
    x = _validate.floating("x", x, letters)
    _validate.minimum_rank("x", x, 3, letters)
    if x.shape[-1] != features:
        raise ValueError(
            f"x must be {letters} with D = {argument} = {features}, got shape {list(x.shape)}; "
            "channels are the last axis"
        )
    return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], features)
