"""Projection and heads: Q = X W_q, and how N heads share one axis.

Letters: see `jaxattn._typing`.
"""

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, Precision


def project(
    x: Float[Array, "*B T D"],
    weight: Float[Array, "D F"],
    bias: Float[Array, "F"] | None = None,
    *,
    precision: Precision = None,
) -> Float[Array, "*B T F"]:
    """Project the last axis: `X W + b`, summed in float32 or wider, in x's dtype.

    Args:
      x: `[*B, T, D]`.
      weight: `[D, F]`, F any output width (N·H for all heads at once).
      bias: `[F]` or None.
      precision: as in `jax.lax.dot_general`.

    Returns:
      `[*B, T, F]`.

    Raises:
      TypeError: an argument is no floating array, or dtypes are mixed.
      ValueError: D of x and of weight differ, or bias is not `[F]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import project
      >>> project(jnp.ones((3, 2)), jnp.ones((2, 5))).shape
      (3, 5)

    Source: Vaswani et al. 2017, section 3.2.2 (Q = X W^Q, likewise K and V).
    """
    x, weight, bias = _validate.projection(x, weight, bias)
    wide = accumulator(x.dtype)
    product = jnp.matmul(x, weight, precision=precision, preferred_element_type=wide)
    if bias is not None:
        product = product + jnp.expand_dims(bias.astype(wide), tuple(range(x.ndim - 1)))
    return product.astype(x.dtype)


def split_heads(x: Float[Array, "*B T F"], heads: int) -> Float[Array, "*B N T H"]:
    """Give each of N heads its own matrix: `[*B, T, N·H] -> [*B, N, T, H]`.

    Args:
      x: `[*B, T, N·H]`; head h owns the columns h·H to (h+1)·H.
      heads: N, a divisor of the last axis.

    Raises:
      ValueError: `heads` does not divide the last axis of x.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import split_heads
      >>> split_heads(jnp.ones((7, 12)), heads=3).shape
      (3, 7, 4)

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    x = _validate.heads_divide(x, heads)
    x = jax.lax.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))
    return jnp.swapaxes(x, -2, -3)


def merge_heads(x: Float[Array, "*B N T H"]) -> Float[Array, "*B T F"]:
    """Concatenate the heads, the inverse of `split_heads`: `[*B, N, T, H] -> [*B, T, N·H]`.

    Args:
      x: `[*B, N, T, H]`.

    Raises:
      ValueError: x has fewer than three axes.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import merge_heads
      >>> merge_heads(jnp.ones((3, 7, 4))).shape
      (7, 12)

    Source: Vaswani et al. 2017, section 3.2.2 (Concat).
    """
    x = _validate.array("x", x, "[*B, N, T, H]")
    _validate.minimum_rank("x", x, 3, "[*B, N, T, H]")
    x = jnp.swapaxes(x, -2, -3)
    return jax.lax.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))
