"""Rotary positions: pairs of features turn with the position. Letters: see `jaxattn._typing`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, Int
from jaxattn.positions._sinusoidal import outer


def rotary(
    x: Float[Array, "*B T N H"],
    positions: Int[Array, "*B T"],
    *,
    base: float = 10000.0,
    size: int | None = None,
    interleaved: bool = False,
    scaling: Callable[[np.ndarray], np.ndarray] | None = None,
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
      scaling: changes the rates `base^(-2i/R)`, for example `LinearScaling(4.0)`.

    Returns:
      `[*B, T, N, H]` in x's dtype, rotated in float32 or wider.

    Raises:
      TypeError: x is no floating array, or positions are no integers.
      ValueError: R is odd or larger than H, base is not above 0, or positions are neither `[T]`
        nor `[*B, T]`.

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
    if not base > 0:
        raise ValueError(f"base must be above 0, got {base}")
    size = x.shape[-1] if size is None else size
    wide = accumulator(x.dtype)
    rates = base ** (-np.arange(0, size, 2) / max(size, 1))
    rates = rates if scaling is None else scaling(rates)
    angles = outer(positions.astype(wide), jnp.asarray(rates, wide))
    gain = getattr(scaling, "amplitude", 1.0)
    return rotate(x, gain * jnp.cos(angles), gain * jnp.sin(angles), interleaved=interleaved)


def rotate(
    x: Float[Array, "*B T N H"],
    cos: Float[Array, "*B T R/2"],
    sin: Float[Array, "*B T R/2"],
    *,
    interleaved: bool = False,
) -> Float[Array, "*B T N H"]:
    """Turn pairs of features by angles of which cosine and sine are given.

        (a, b) -> (a cos - b sin, a sin + b cos)

    Args:
      x: `[*B, T, N, H]`.
      cos: `[T, R/2]` or `[*B, T, R/2]`, for the first R features; the others stay.
      sin: likewise.
      interleaved: as in `rotary`.

    Returns:
      `[*B, T, N, H]` in x's dtype, computed in float32 or wider.

    Raises:
      TypeError: an argument is no floating array.
      ValueError: R is larger than H, or the tables' shape is another.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.positions import rotate
      >>> quarter = jnp.array([[0.0]]), jnp.array([[1.0]])
      >>> print(rotate(jnp.array([[[1.0, 2.0, 3.0]]]), *quarter))
      [[[-2.  1.  3.]]]

    Source: Su et al. 2021, "RoFormer", equation 34.
    """
    x, cos, sin = _check_tables(x, cos, sin)
    wide, size = accumulator(x.dtype), 2 * cos.shape[-1]
    cos, sin = (
        jnp.expand_dims(table.astype(wide), (*range(x.ndim - 1 - table.ndim), -2))
        for table in (cos, sin)
    )
    a, b = _pairs(x[..., :size].astype(wide), interleaved)
    rotated = _unpair(a * cos - b * sin, a * sin + b * cos, interleaved)
    return jnp.concatenate([rotated.astype(x.dtype), x[..., size:]], axis=-1)


@dataclasses.dataclass(frozen=True)
class Rotary:
    """The options of `rotary` together: a function of `(x, positions)`.

    Args:
      base, size, interleaved, scaling: as in `rotary`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.positions import Rotary
      >>> turn = Rotary(base=500000.0, interleaved=True)
      >>> turn(jnp.ones((5, 2, 8)), jnp.arange(5)).shape
      (5, 2, 8)
    """

    base: float = 10000.0
    size: int | None = None
    interleaved: bool = False
    scaling: Callable[[np.ndarray], np.ndarray] | None = None

    def __call__(self, x: Float[Array, "*B T N H"], positions: Int[Array, "*B T"]) -> Array:
        """`rotary` with these options."""
        options: dict[str, Any] = vars(self)
        return rotary(x, positions, **options)


def _pairs(x: Array, interleaved: bool) -> tuple[Array, Array]:
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _unpair(a: Array, b: Array, interleaved: bool) -> Array:
    if not interleaved:
        return jnp.concatenate([a, b], axis=-1)
    return jnp.stack([a, b], axis=-1).reshape(*a.shape[:-1], 2 * a.shape[-1])


def _check_tables(x: Any, cos: Any, sin: Any) -> tuple[Array, Array, Array]:
    x = _validate.floating("x", x, "[*B, T, N, H]")
    _validate.minimum_rank("x", x, 3, "[*B, T, N, H]")
    tables = []
    for name, table in (("cos", cos), ("sin", sin)):
        table = _validate.floating(name, table, "[T, R/2] or [*B, T, R/2]")
        if table.shape[:-1] not in (x.shape[-3:-2], x.shape[:-2]):
            raise ValueError(
                f"{name} must be [T, R/2] or [*B, T, R/2] for x [*B, T, N, H] = {list(x.shape)}, "
                f"got shape {list(table.shape)}; {_validate.LAYOUT_HINT}"
            )
        tables.append(table)
    if tables[0].shape[-1] != tables[1].shape[-1] or 2 * tables[0].shape[-1] > x.shape[-1]:
        raise ValueError(
            f"cos and sin must have R/2 columns with R ≤ H = {x.shape[-1]}, got shapes "
            f"{list(tables[0].shape)} and {list(tables[1].shape)}"
        )
    return x, tables[0], tables[1]


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
