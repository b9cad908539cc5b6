"""Position-sensitive attention (PSA), and the blocks of the YOLO detectors that hold it.

Full attention over a feature map, where the map is small: at stride 32 a 640 × 640 image has 400
places, at stride 8 it would have 6,400, and 256 times the pairs (`jaxattn.grid_cost`). Where a
token stands it learns from a depthwise convolution of the values. Letters: see `jaxattn._typing`.
"""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import attention
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks
from jaxattn.nn.convolution import ConvBlock, same


class PositionSensitiveAttention(nnx.Module):
    """Multi-head attention over all places, plus a depthwise convolution of the values.

        out = project(merge(attention(Q, K, V)) + depthwise(V))

    Args:
      features: D.
      num_heads: N, a divisor of D; default one for each 64 channels, at least one.
      key_ratio: H / Hv, the head size of queries and keys over that of values.
      kernel_size: of the depthwise convolution.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: heads do not divide the channels.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import PositionSensitiveAttention
      >>> call = lambda x: PositionSensitiveAttention(8, num_heads=2, rngs=nnx.Rngs(0))(x)
      >>> nnx.eval_shape(call, jnp.ones((1, 4, 5, 8), jnp.float32)).shape
      (1, 4, 5, 8)

    Source: Wang et al. 2024, "YOLOv10", section 3.3.
    """

    def __init__(
        self,
        features: int,
        num_heads: int | None = None,
        *,
        key_ratio: float = 0.5,
        kernel_size: int = 3,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        num_heads = max(1, features // 64) if num_heads is None else num_heads
        why = "each head has as many channels"
        _checks.divides("num_heads", num_heads, "features", features, why)
        key_features = num_heads * max(1, round(features // num_heads * key_ratio))
        linear: dict[str, Any] = dict(activation=same, param_dtype=param_dtype, rngs=rngs)
        self.num_heads = num_heads
        self.query = ConvBlock(features, key_features, **linear)
        self.key = ConvBlock(features, key_features, **linear)
        self.value = ConvBlock(features, features, **linear)
        self.position = ConvBlock(
            features, features, kernel_size=kernel_size, groups=features, **linear
        )
        self.out = ConvBlock(features, features, **linear)

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width D"]:
        """`[*B, height, width, D] -> [*B, height, width, D]`."""
        value = self.value(x)
        heads = (as_heads(y, self.num_heads) for y in (self.query(x), self.key(x), value))
        out = attention(*heads).reshape(value.shape)
        return self.out(out + self.position(value))


class PSABlock(nnx.Module):
    """Position-sensitive attention and a feed-forward of two convolutions, with residuals.

    Args:
      features: D.
      num_heads: N, as in `PositionSensitiveAttention`.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: heads do not divide the channels.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import PSABlock
      >>> call = lambda x: PSABlock(8, rngs=nnx.Rngs(0))(x)
      >>> nnx.eval_shape(call, jnp.ones((1, 4, 5, 8), jnp.float32)).shape
      (1, 4, 5, 8)

    Source: Wang et al. 2024, "YOLOv10", section 3.3.
    """

    def __init__(
        self,
        features: int,
        num_heads: int | None = None,
        *,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        self.attention = PositionSensitiveAttention(features, num_heads, **options)
        self.hidden = ConvBlock(features, 2 * features, **options)
        self.out = ConvBlock(2 * features, features, activation=same, **options)

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width D"]:
        """`[*B, height, width, D] -> [*B, height, width, D]`."""
        x = x + self.attention(x)
        return x + self.out(self.hidden(x))


class C2PSA(nnx.Module):
    """Two halves of the channels; one goes through `PSABlock`s, then both are joined.

    Args:
      features: D, even.
      blocks: how many `PSABlock`s.
      num_heads: N of each, a divisor of D / 2; default one for each 64 channels, at least one.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: D is odd, or heads do not divide D / 2.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import C2PSA
      >>> call = lambda x: C2PSA(8, rngs=nnx.Rngs(0))(x)
      >>> nnx.eval_shape(call, jnp.ones((1, 4, 5, 8), jnp.float32)).shape
      (1, 4, 5, 8)

    Source: the block at stride 32 of YOLO11 (Khanam and Hussain 2024, section 3.2).
    """

    def __init__(
        self,
        features: int,
        blocks: int = 1,
        num_heads: int | None = None,
        *,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.divides("2", 2, "features", features, "half of the channels are attended")
        _checks.positive(blocks=blocks)
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        self.divide = ConvBlock(features, features, **options)
        self.blocks = nnx.List(PSABlock(features // 2, num_heads, **options) for _ in range(blocks))
        self.join = ConvBlock(features, features, **options)

    def __call__(self, x: Float[Array, "*B height width D"]) -> Float[Array, "*B height width D"]:
        """`[*B, height, width, D] -> [*B, height, width, D]`."""
        kept, attended = jnp.split(self.divide(x), 2, axis=-1)
        for block in self.blocks:
            attended = block(attended)
        return self.join(jnp.concatenate([kept, attended], axis=-1))


def as_heads(x: Float[Array, "*B height width F"], heads: int) -> Float[Array, "*B T N H"]:
    """Places as tokens, row by row, and channels as N heads."""
    *batch, height, width, features = x.shape
    return x.reshape(*batch, height * width, heads, features // heads)
