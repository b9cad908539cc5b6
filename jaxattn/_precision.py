"""In which dtype sums are taken: float32 or wider, by rules that no promotion mode changes.

And which numbers are known before the program runs, and fit into a dtype.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxattn._typing import Array


def accumulator(*dtypes: Any) -> Any:
    """float64 where one of the dtypes is, else float32: what sums and the softmax run in."""
    return jnp.float64 if jnp.float64 in map(jnp.dtype, dtypes) else jnp.float32


def as_dtype(number: Any, dtype: Any) -> Array:
    """A number or array in `dtype`, so that no promotion rule has a say."""
    return jnp.asarray(number).astype(dtype)


def known(x: Any) -> np.ndarray | None:
    """x in NumPy where its numbers are known before the program runs, else None."""
    known_here = not isinstance(x, Tracer) and getattr(x, "is_fully_addressable", True)
    return np.asarray(x) if known_here else None


def check_int32(name: str, x: Any, hint: str) -> None:
    """A ValueError where integers are known to be none of int32, which would turn into others."""
    narrow = hasattr(x, "dtype") and np.can_cast(x.dtype, np.int32)
    numbers = None if narrow else known(x)
    limits = np.iinfo(np.int32)
    for number in () if numbers is None or not numbers.size else (numbers.min(), numbers.max()):
        if not limits.min <= number <= limits.max:
            raise ValueError(f"{name} must lie below 2^31, as int32 does, got {number}; {hint}")
