"""Sines and cosines of the position. Letters: see `jaxattn._typing`."""

import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._typing import Array, Int


def sinusoidal(positions: Int[Array, "*B T"], width: int, *, base: float = 10000.0) -> Array:
    """Sines and cosines of the position, to be added to token embeddings.

        out[2i] = sin(p / base^(2i/D)),   out[2i+1] = cos(p / base^(2i/D))

    Args:
      positions: integers `[*B, T]`.
      width: D, even or odd.
      base: the longest wavelength is 2π · base positions.

    Returns:
      float32 `[*B, T, D]`.

    Raises:
      TypeError: positions are no integers, or width is none.
      ValueError: width is below 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.positions import sinusoidal
      >>> print(sinusoidal(jnp.array([0]), width=4))
      [[0. 1. 0. 1.]]

    Source: Vaswani et al. 2017, section 3.5.
    """
    positions = _validate.integers("positions", positions, "[*B, T]")
    if _validate.integer("width", width) < 1:
        raise ValueError(f"width must be D ≥ 1, got {width}")
    pair, odd = np.divmod(np.arange(width), 2)
    rates = jnp.asarray(base ** (-2.0 * pair / width), jnp.float32)
    angles = outer(positions.astype(jnp.float32), rates)
    odd = jnp.broadcast_to(jnp.asarray(odd == 1), angles.shape)
    return jnp.where(odd, jnp.cos(angles), jnp.sin(angles))


def outer(positions: Array, rates: Array) -> Array:
    """`[*B, T]` times `[R]`: `[*B, T, R]`."""
    return positions[..., None] * jnp.expand_dims(rates, tuple(range(positions.ndim)))
