"""C3k2: bottlenecks whose every stage is kept, with attention or without.

Letters: see `jaxattn._typing`; images are `[*B, height, width, D]`.
"""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Float
from jaxattn.nn import _checks
from jaxattn.nn.convolution import ConvBlock
from jaxattn.nn.position_sensitive import PSABlock


class Bottleneck(nnx.Module):
    """Two convolutions of 3 × 3 with a residual: `x + conv(conv(x))`.

    Args:
      features: D.
      hidden: channels in between; default D / 2.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import Bottleneck
      >>> call = lambda x: Bottleneck(8, rngs=nnx.Rngs(0))(x)
      >>> nnx.eval_shape(call, jnp.ones((1, 4, 5, 8), jnp.float32)).shape
      (1, 4, 5, 8)

    Source: He et al. 2016; Redmon and Farhadi 2018 (Darknet-53).
    """

    def __init__(
        self,
        features: int,
        hidden: int | None = None,
        *,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        hidden = max(1, features // 2) if hidden is None else hidden
        options: dict[str, Any] = dict(kernel_size=3, param_dtype=param_dtype, rngs=rngs)
        self.first = ConvBlock(features, hidden, **options)
        self.second = ConvBlock(hidden, features, **options)

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width D"]:
        """`[*B, height, width, D] -> [*B, height, width, D]`."""
        return x + self.second(self.first(x))


class C3k2(nnx.Module):
    """Two halves of the channels; one goes through bottlenecks, and every stage is joined.

    With `attention` each bottleneck is followed by a `PSABlock`.

    Args:
      in_features: channels of the input.
      out_features: channels of the output, even; half of them go through the bottlenecks.
      blocks: how many bottlenecks.
      attention: whether a `PSABlock` follows each.
      num_heads: N of each `PSABlock`; default one for each 64 channels, at least one.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: `out_features` is odd, or heads do not divide its half.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import C3k2
      >>> call = lambda x: C3k2(6, 8, attention=True, rngs=nnx.Rngs(0))(x)
      >>> nnx.eval_shape(call, jnp.ones((1, 4, 5, 6), jnp.float32)).shape
      (1, 4, 5, 8)

    Source: the block of YOLO11 (Khanam and Hussain 2024, section 3.1), after CSPNet (Wang et al.
      2020).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        blocks: int = 1,
        *,
        attention: bool = False,
        num_heads: int | None = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.divides("2", 2, "out_features", out_features, "half goes through the bottlenecks")
        _checks.positive(blocks=blocks)
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        half = out_features // 2
        self.divide = ConvBlock(in_features, out_features, **options)
        self.stages = nnx.List(_stage(half, attention, num_heads, options) for _ in range(blocks))
        self.join = ConvBlock((2 + blocks) * half, out_features, **options)

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width F"]:
        """`[*B, height, width, in_features] -> [*B, height, width, out_features]`."""
        parts = jnp.split(self.divide(x), 2, axis=-1)
        for stage in self.stages:
            parts.append(stage(parts[-1]))
        return self.join(jnp.concatenate(parts, axis=-1))


def _stage(
    features: int, attention: bool, num_heads: int | None, options: dict[str, Any]
) -> nnx.Module:
    bottleneck = Bottleneck(features, **options)
    if not attention:
        return bottleneck
    return nnx.Sequential(bottleneck, PSABlock(features, num_heads, **options))
