"""Compilation with little optimisation: a check is run once, so compiling it is what costs.

On a CPU, XLA spends two to five times as long on making a small program fast as on making it. The
arithmetic and its order within a sum are the compiler's business either way; the check
`jit_equals_eager` holds programs made like this against ordinarily compiled ones.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax

EFFORTS: tuple[dict[str, Any], ...] = (
    {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False},
    {"xla_backend_optimization_level": 0},
    {},
)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """jax.jit, with as little effort as this XLA can be asked for on a CPU, else as usual."""
    effort = little_effort() if jax.default_backend() == "cpu" else {}
    return jax.jit(function, compiler_options=effort) if effort else jax.jit(function)


@functools.cache
def little_effort() -> dict[str, Any]:
    """The first of `EFFORTS` whose options exist here; asked once, as XLA does not change."""
    for options in EFFORTS:
        with contextlib.suppress(Exception):
            jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
            return options
    return {}
