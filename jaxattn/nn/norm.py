"""Normalisation of each token's features. Letters: see `jaxattn._typing`.

Flax's own LayerNorm raises under strict dtype promotion for any dtype but float32, and its default
variance, E[x²] - E[x]², cancels where the mean is large. This one has its parameters and neither.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks


def layer_norm(
    x: Float[Array, "*B D"],
    scale: Float[Array, "D"],
    bias: Float[Array, "D"] | None = None,
    *,
    epsilon: float = 1e-6,
) -> Float[Array, "*B D"]:
    """Mean 0 and variance 1 over the last axis: `(x - mean) / √(variance + ε) · scale + bias`.

    Args:
      x: `[*B, D]`.
      scale: `[D]`.
      bias: `[D]` or None.
      epsilon: ε.

    Returns:
      `[*B, D]` in x's dtype, computed in float32 or wider.

    Raises:
      TypeError: an argument is no floating array.
      ValueError: scale or bias is not `[D]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import layer_norm
      >>> print(layer_norm(jnp.array([1.0, 3.0]), scale=jnp.ones(2)).round(3))
      [-1.  1.]

    Source: Ba, Kiros and Hinton 2016, "Layer normalization", equation 3.
    """
    x = _checks.features(x, scale=scale, bias=bias)
    wide = accumulator(x.dtype)
    centred = x.astype(wide) - jnp.mean(x, axis=-1, keepdims=True, dtype=wide)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    out = centred * jax.lax.rsqrt(variance + epsilon) * _feature(scale, x.ndim, wide)
    out = out if bias is None else out + _feature(bias, x.ndim, wide)
    return out.astype(x.dtype)


def rms_norm(
    x: Float[Array, "*B D"], scale: Float[Array, "D"], *, epsilon: float = 1e-6
) -> Float[Array, "*B D"]:
    """Mean square 1 over the last axis: `x / √(mean x² + ε) · scale`.

    Args:
      x: `[*B, D]`.
      scale: `[D]`.
      epsilon: ε.

    Returns:
      `[*B, D]` in x's dtype, computed in float32 or wider.

    Raises:
      TypeError: an argument is no floating array.
      ValueError: scale is not `[D]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import rms_norm
      >>> import numpy as np
      >>> print(np.array(rms_norm(jnp.array([3.0, 4.0]), scale=jnp.ones(2))).round(2))
      [0.85 1.13]

    Source: Zhang and Sennrich 2019, "Root mean square layer normalization", equation 4.
    """
    x = _checks.features(x, scale=scale)
    wide = accumulator(x.dtype)
    square = jnp.mean(x.astype(wide) ** 2, axis=-1, keepdims=True)
    out = x.astype(wide) * jax.lax.rsqrt(square + epsilon) * _feature(scale, x.ndim, wide)
    return out.astype(x.dtype)


class LayerNorm(nnx.Module):
    """`layer_norm` with parameters `scale` and `bias`, named as Flax's.

    Args:
      width: D.
      use_bias: whether there is a bias.
      epsilon: ε, added to the variance.
      param_dtype: of the parameters.

    Raises:
      TypeError, ValueError: the width is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import LayerNorm
      >>> LayerNorm(8)(jnp.ones((2, 5, 8))).shape
      (2, 5, 8)
    """

    def __init__(
        self,
        width: int,
        *,
        use_bias: bool = True,
        epsilon: float = 1e-6,
        param_dtype: Any = jnp.float32,
    ):
        _checks.positive(width=width)
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(width, param_dtype))
        self.bias = nnx.Param(jnp.zeros(width, param_dtype)) if use_bias else nnx.data(None)

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """`[*B, D] -> [*B, D]`, in x's dtype."""
        bias = None if self.bias is None else self.bias[...]
        return layer_norm(x, self.scale[...], bias, epsilon=self.epsilon)


class RMSNorm(nnx.Module):
    """`rms_norm` with the parameter `scale`, named as Flax's.

    Args:
      width: D.
      epsilon: ε, added to the mean square.
      param_dtype: of the parameter.

    Raises:
      TypeError, ValueError: the width is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import RMSNorm
      >>> RMSNorm(8, epsilon=1e-5)(jnp.ones((2, 5, 8))).shape
      (2, 5, 8)
    """

    def __init__(self, width: int, *, epsilon: float = 1e-6, param_dtype: Any = jnp.float32):
        _checks.positive(width=width)
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(width, param_dtype))

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """`[*B, D] -> [*B, D]`, in x's dtype."""
        return rms_norm(x, self.scale[...], epsilon=self.epsilon)


def _feature(x: Float[Array, "D"], rank: int, dtype: Any) -> Array:
    """`[D]` as the last of `rank` axes."""
    return jnp.expand_dims(x.astype(dtype), tuple(range(rank - 1)))
