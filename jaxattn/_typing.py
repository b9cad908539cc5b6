"""One legend of letters for every shape in the library, and the array types that use it.

======  ==========================================================================
`*B`    any number of leading batch axes, also none
`T`     number of queries
`S`     number of keys and values
`N`     query heads
`K`     key/value heads, N = G * K; query head h reads key head h // G
`H`     head size of query and key
`Hv`    head size of value; may differ from H
`D`     model width
======  ==========================================================================
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
from jaxtyping import Array, Bool, Float, Int, Shaped

Heads: TypeAlias = Float[Array, "*B T N H"]
Logsumexp: TypeAlias = Float[Array, "*B T N"]
QueryPositions: TypeAlias = Int[Array, "*#B T 1"]
KeyPositions: TypeAlias = Int[Array, "*#B 1 S"]
PRNGKey: TypeAlias = Shaped[Array, "..."]

ScoreMod: TypeAlias = Callable[[Any, Any, Any], Any]
Bias: TypeAlias = Callable[[Any, Any], Any]
Precision: TypeAlias = (
    None | str | jax.lax.Precision | tuple[str, str] | tuple[jax.lax.Precision, jax.lax.Precision]
)

__all__ = [
    "Array",
    "Bias",
    "Bool",
    "Float",
    "Heads",
    "Int",
    "KeyPositions",
    "Logsumexp",
    "PRNGKey",
    "Precision",
    "QueryPositions",
    "ScoreMod",
    "Shaped",
]
