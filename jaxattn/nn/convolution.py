"""Convolution, batch normalisation, activation: what detectors are made of.

Images are `[*B, height, width, D]`. Letters: see `jaxattn._typing`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks


def same(x: Array) -> Array:
    """No activation."""
    return x


class ConvBlock(nnx.Module):
    """`activation(norm(conv(x)))`, with as much padding as keeps the size at stride 1.

    Args:
      in_features: channels of the input.
      out_features: channels of the output.
      kernel_size: odd, of both sides.
      stride: of both sides.
      groups: groups of channels that see only themselves; must divide both.
      activation: elementwise; default SiLU.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: groups do not divide the channels, or the kernel is even.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import ConvBlock
      >>> block = ConvBlock(3, 8, kernel_size=3, stride=2, rngs=nnx.Rngs(0))
      >>> block(jnp.ones((2, 6, 6, 3), jnp.float32)).shape
      (2, 3, 3, 8)

    Source: Redmon and Farhadi 2017 (convolution and normalisation); Elfwing et al. 2018 (SiLU).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        kernel_size: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: Callable[[Array], Array] = jax.nn.silu,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(kernel_size=kernel_size, stride=stride)
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            _checks.divides("groups", groups, name, size, "each group has as many channels")
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that it has a middle, got {kernel_size}")
        self.activation = activation
        self.conv = nnx.Conv(
            in_features,
            out_features,
            (kernel_size, kernel_size),
            strides=(stride, stride),
            padding=[(kernel_size // 2, kernel_size // 2)] * 2,
            feature_group_count=groups,
            use_bias=False,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        self.norm = nnx.BatchNorm(
            out_features, momentum=0.97, epsilon=1e-3, param_dtype=param_dtype, rngs=rngs
        )

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width F"]:
        """`[*B, height, width, D]` to the output's channels, ⌈height / stride⌉ and so on."""
        return self.activation(self.norm(self.conv(image(x, self.conv.in_features))))


def image(x: Any, features: int) -> Array:
    """`[*B, height, width, D]` with the D of the module."""
    letters = "[*B, height, width, D]"
    x = _validate.floating("x", x, letters)
    _validate.minimum_rank("x", x, 3, letters)
    if x.shape[-1] != features:
        raise ValueError(
            f"x must be {letters} with D = in_features = {features}, got shape {list(x.shape)}; "
            "channels are the last axis"
        )
    return x
