"""In which dtype sums are taken: float32 or wider, by rules that no promotion mode changes."""

from typing import Any

import jax.numpy as jnp

from jaxattn._typing import Array


def accumulator(*dtypes: Any) -> Any:
    """float64 where one of the dtypes is, else float32: what sums and the softmax run in."""
    return jnp.float64 if jnp.float64 in map(jnp.dtype, dtypes) else jnp.float32


def as_dtype(number: Any, dtype: Any) -> Array:
    """A number or array in `dtype`, so that no promotion rule has a say."""
    return jnp.asarray(number).astype(dtype)
