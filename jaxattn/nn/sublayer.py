"""How a sublayer adds to the residual: where the normalisation stands, and a scale for features.

Letters: see `jaxattn._typing`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Float

Sublayer = Callable[[Array], Array]


def pre_norm(x: Float[Array, "*B T D"], sublayer: Sublayer, norm: Sublayer) -> Array:
    """`x + sublayer(norm(x))`: an open path from input to output (Xiong et al. 2020)."""
    return x + sublayer(norm(x)).astype(x.dtype)


def post_norm(x: Float[Array, "*B T D"], sublayer: Sublayer, norm: Sublayer) -> Array:
    """`norm(x + sublayer(x))`, as the first transformer (Vaswani et al. 2017, section 3.1)."""
    return norm(x + sublayer(x).astype(x.dtype))


ARRANGEMENTS = {"pre": pre_norm, "post": post_norm}


def scaled_by(x: Float[Array, "*B T D"], scale: Float[Array, "D"]) -> Float[Array, "*B T D"]:
    """`x ∘ scale`, in x's dtype: each feature of what a sublayer adds has its own factor."""
    return x * jnp.expand_dims(scale.astype(x.dtype), tuple(range(x.ndim - 1)))


def scale_parameter(start: float | None, width: int, dtype: Any) -> nnx.Param | None:
    """`[D]`, all the same at first; None for no scale."""
    return None if start is None else nnx.Param(jnp.full(width, start, dtype))
