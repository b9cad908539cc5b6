"""Inputs that a check is run on: drawn in float64, rounded once to the dtype under test.

Letters: `*B` batch axes, T queries, S keys, N query heads, K key heads, H and Hv head sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Array = Any  # a NumPy or JAX array; both are taken everywhere

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}


EMPTY_ROWS = [0, 5, 12]


class Shape(NamedTuple):
    """The sizes of one problem. 13 is odd, prime and no multiple of anybody's tile."""

    batch: tuple[int, ...] = (2,)
    T: int = 13
    S: int = 13
    N: int = 2
    K: int = 2
    H: int = 4
    Hv: int = 4


BASE = Shape()


@dataclass(frozen=True)
class Problem:
    """One set of inputs, directions and cotangents, and the roundoff errors are judged by.

    `masking` says how the function under test learns who may attend to whom: "argument" (it
    takes a mask), "causal" (it is causal by itself) or "none" (everybody attends to all).
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray
    tangent: tuple[np.ndarray, ...]
    second_tangent: tuple[np.ndarray, ...]
    cotangent: np.ndarray
    lse_cotangent: np.ndarray
    shape: Shape
    masking: str
    unit: float
    seed: int

    @property
    def x(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The three arguments that one differentiates in."""
        return self.query, self.key, self.value

    @property
    def dtype(self) -> np.dtype:
        """The dtype under test."""
        return self.query.dtype


def problem(
    seed: int = 0,
    dtype: str = "float32",
    shape: Shape = BASE,
    masking: str = "argument",
    deviation: float = 1.0,
) -> Problem:
    """Draw a problem: standard normal entries, queries times `deviation` (of the scores).

    >>> from jaxattn.verify import problem
    >>> problem(seed=0, dtype="float32").query.shape
    (2, 13, 2, 4)
    """
    generator = np.random.default_rng([seed, *shape.batch, *shape[1:]])
    kind = jnp.dtype(dtype)

    def normal(*sizes: int) -> np.ndarray:
        return np.asarray(generator.standard_normal(shape.batch + sizes)).astype(kind)

    def triple() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (
            normal(shape.T, shape.N, shape.H),
            normal(shape.S, shape.K, shape.H),
            normal(shape.S, shape.K, shape.Hv),
        )

    query, key, value = triple()
    return Problem(
        query=(query * deviation).astype(kind),
        key=key,
        value=value,
        mask=draw_mask(generator, shape, masking),
        tangent=triple(),
        second_tangent=triple(),
        cotangent=normal(shape.T, shape.N, shape.Hv),
        lse_cotangent=normal(shape.T, shape.N).astype(at_least_float32(kind)),
        shape=shape,
        masking=masking,
        unit=UNIT_ROUNDOFF[kind.name],
        seed=seed,
    )


def at_least_float32(dtype: Any) -> np.dtype:
    """The dtype that sums and logsumexp are kept in: float32, or float64 for float64."""
    return np.dtype(dtype) if np.dtype(dtype).itemsize > 4 else np.dtype(np.float32)


def draw_mask(generator: np.random.Generator, shape: Shape, masking: str) -> np.ndarray:
    """A boolean [T, S]: all, causal, or causal with holes; key 0 is open to every row."""
    if masking == "none":
        return np.ones((shape.T, shape.S), bool)
    if masking == "causal":
        return np.tri(shape.T, shape.S, dtype=bool)
    mask = generator.random((shape.T, shape.S)) < 0.75
    if shape.T == shape.S:
        mask &= np.tri(shape.T, shape.S, dtype=bool)
    mask[:, :1] = True
    return mask


def other(
    given: Problem, dtype: str | None = None, deviation: float = 1.0, **sizes: Any
) -> Problem:
    """A problem of other sizes (T=, S=, batch=, ...), drawn from the same seed and dtype."""
    shape = given.shape._replace(**sizes)
    name = dtype or given.dtype.name
    drawn = problem(given.seed, name, shape, given.masking, deviation)
    return replace(drawn, unit=max(given.unit, drawn.unit))


def with_mask(given: Problem, mask: Array) -> Problem:
    """The same problem under another mask."""
    return replace(given, mask=np.asarray(mask, bool))


def with_empty_rows(given: Problem) -> Problem:
    """The same problem with three queries that may attend to nothing."""
    mask = given.mask.copy()
    mask[EMPTY_ROWS] = False
    return with_mask(given, mask)


def with_inputs(
    given: Problem, query: Array | None = None, key: Array | None = None, value: Array | None = None
) -> Problem:
    """The same problem with some of the inputs replaced, in the problem's dtype."""
    changed = {
        name: np.asarray(array).astype(given.dtype)
        for name, array in (("query", query), ("key", key), ("value", value))
        if array is not None
    }
    return replace(given, **changed)
