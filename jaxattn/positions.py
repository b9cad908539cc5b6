"""Positions put into the data: functions of explicit positions, without caches.

Letters: see `jaxattn._typing`.
"""

import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, Int


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
    angles = _outer(positions.astype(jnp.float32), rates)
    odd = jnp.broadcast_to(jnp.asarray(odd == 1), angles.shape)
    return jnp.where(odd, jnp.cos(angles), jnp.sin(angles))


def rotary(
    x: Float[Array, "*B T N H"],
    positions: Int[Array, "*B T"],
    *,
    base: float = 10000.0,
    size: int | None = None,
    interleaved: bool = False,
) -> Float[Array, "*B T N H"]:
    """Rotate pairs of features by an angle proportional to the position.

        (a, b) -> (a cos φ - b sin φ, a sin φ + b cos φ),   φ = p · base^(-2i/R)

    so that `rotary(q, p) · rotary(k, r)` depends on p and r through p - r only.

    Args:
      x: `[*B, T, N, H]`, query or key.
      positions: integers `[T]` or `[*B, T]`.
      base: θ, the base of the wavelengths.
      size: R, how many of the H features (the first ones) are rotated; even; default H.
      interleaved: pair neighbours (2i, 2i+1) as in GPT-J; otherwise the halves (i, i + R/2) as
        in Llama.

    Returns:
      `[*B, T, N, H]` in x's dtype, rotated in float32 or wider.

    Raises:
      TypeError: x is no floating array, or positions are no integers.
      ValueError: R is odd or larger than H, or positions are neither `[T]` nor `[*B, T]`.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from jaxattn.positions import rotary
      >>> x = jnp.ones((2, 1, 2))
      >>> print(np.array(rotary(x, jnp.array([0, 1]))[:, 0]).round(3))
      [[ 1.     1.   ]
       [-0.301  1.382]]

    Source: Su et al. 2021, "RoFormer", section 3.2.2.
    """
    x, positions = _check_rotary(x, positions, size)
    size = x.shape[-1] if size is None else size
    wide = accumulator(x.dtype)
    rates = jnp.asarray(base ** (-np.arange(0, size, 2) / max(size, 1)), wide)
    angles = jnp.expand_dims(_outer(positions.astype(wide), rates), -2)
    angles = jnp.expand_dims(angles, tuple(range(x.ndim - angles.ndim)))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    turned, rest = x[..., :size].astype(wide), x[..., size:]
    a, b = _pairs(turned, interleaved)
    rotated = _unpair(a * cos - b * sin, a * sin + b * cos, interleaved)
    return jnp.concatenate([rotated.astype(x.dtype), rest], axis=-1)


def _outer(positions: Array, rates: Array) -> Array:
    """`[*B, T]` times `[R]`: `[*B, T, R]`."""
    return positions[..., None] * jnp.expand_dims(rates, tuple(range(positions.ndim)))


def _pairs(x: Array, interleaved: bool) -> tuple[Array, Array]:
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _unpair(a: Array, b: Array, interleaved: bool) -> Array:
    if not interleaved:
        return jnp.concatenate([a, b], axis=-1)
    return jnp.stack([a, b], axis=-1).reshape(*a.shape[:-1], 2 * a.shape[-1])


def _check_rotary(x: Array, positions: Array, size: int | None) -> tuple[Array, Array]:
    x = _validate.floating("x", x, "[*B, T, N, H]")
    _validate.minimum_rank("x", x, 3, "[*B, T, N, H]")
    positions = _validate.integers("positions", positions, "[T] or [*B, T]")
    if positions.shape not in (x.shape[-3:-2], x.shape[:-2]):
        raise ValueError(
            f"positions must be [T] or [*B, T] for x [*B, T, N, H] = {list(x.shape)}, got shape "
            f"{list(positions.shape)}; {_validate.LAYOUT_HINT}"
        )
    size = x.shape[-1] if size is None else _validate.integer("size", size)
    if size % 2 or not 0 <= size <= x.shape[-1]:
        raise ValueError(
            f"size must be even and at most H = {x.shape[-1]}, got {size}; features turn in pairs"
        )
    return x, positions
