"""Batching: jax.vmap of attention and of its derivatives, against one call an example.

Each operation is written as `operation(attend, x, ...)` and held against the oracle's closed forms,
to 900 u for values and 9e3 u for derivatives. Four tokens, and the widest dtype only: batching does
not depend on either.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .problem import Problem
from .small import small_problem
from .subject import Subject, run_on
from .tolerances import DERIVATIVE, VALUE

ALL = (0, 1, 2)
SUBSETS = [[i for i in ALL if code >> i & 1] for code in range(1, 8)]
SECOND = ("jvp", "vjp", "second_order")


def _vmap_equals_loop(attend: Any, x: Any, stack: Any) -> Any:
    return [
        jax.vmap(attend, [0 if i in subset else None for i in ALL])(
            *(stack[i] if i in subset else x[i] for i in ALL)
        )
        for subset in SUBSETS
    ]


def vmap_equals_loop(subject: Subject, given: Problem) -> Measurement:
    """vmap over each of the seven subsets of (query, key, value) equals one call an example.

    900 u: batched products sum in another order.

    vmap(f) = f, example by example. Kills vmap_ignored.
    """
    small = small_problem(given)
    stacked = [np.stack([a, b]) for a, b in zip(small.x, small.tangent, strict=True)]

    results = run_on(subject, _vmap_equals_loop, small, tuple(stacked))
    found = []
    for subset, result in zip(SUBSETS, results, strict=True):
        for example in (0, 1):
            x = [stacked[i][example] if i in subset else small.x[i] for i in ALL]
            expected = oracle.softmax(x, small.mask).out
            found.append(
                compare(f"vmap over arguments {subset}", result[example], expected, small, VALUE)
            )
    return worst(found)


def _vmap_of_derivatives(attend: Any, x: Any, stack: Any, e: Any) -> Any:
    by_input = jax.vmap(lambda *x: calculus.pull(attend, x, e[0]))(*stack)
    by_cotangent = jax.vmap(lambda e: calculus.pull(attend, x, e))(e)
    return by_input, by_cotangent


def vmap_of_derivatives(subject: Subject, given: Problem) -> Measurement:
    """vmap of vjp over inputs, of vjp over cotangents alone, and of jvp over tangents alone.

    9e3 u: cancelling sums.

    vmap(vjp f). Kills vmap_ignored_in_gradient.
    """
    small = small_problem(given)
    stacks = tuple(np.stack([a, b]) for a, b in zip(small.x, small.tangent, strict=True))
    cotangents = np.stack([small.cotangent, small.cotangent[..., ::-1]])

    got = run_on(subject, _vmap_of_derivatives, small, stacks, cotangents)
    at = [oracle.softmax([array[i] for array in stacks], small.mask) for i in (0, 1)]
    by_input = [oracle.adjoint(each, cotangents[0]) for each in at]
    by_cotangent = [oracle.adjoint(at[0], e) for e in cotangents]
    return worst(
        compare_all(
            what,
            result,
            [np.stack(pair) for pair in zip(*expected, strict=True)],
            small,
            DERIVATIVE,
        )
        for what, result, expected in zip(
            ("vmap of vjp over inputs", "vmap of vjp over cotangents"),
            got,
            (by_input, by_cotangent),
            strict=True,
        )
    )


def _vmap_of_hessian_product(attend: Any, x: Any, dx: Any, e: Any) -> Any:
    product = jax.vmap(lambda *dx: calculus.forward_over_reverse(attend, x, dx, e))(*dx)
    return product, jax.vmap(lambda *dx: calculus.push(attend, x, dx))(*dx)


def vmap_of_hessian_product(subject: Subject, given: Problem) -> Measurement:
    """vmap of Hessian products over directions, as in Hutchinson's estimator, and of jvp.

    9e3 u: cancelling sums.

    vmap(hvp f). Kills second_order_dropped.
    """
    small = small_problem(given)
    stack = tuple(
        np.stack([a, b]) for a, b in zip(small.tangent, small.second_tangent, strict=True)
    )

    products, tangents = run_on(subject, _vmap_of_hessian_product, small, stack, small.cotangent)
    at, directions = oracle.softmax(small.x, small.mask), (small.tangent, small.second_tangent)
    expected = zip(*(oracle.hessian(at, dx, small.cotangent) for dx in directions), strict=True)
    moved = np.stack([oracle.tangent(at, dx)[0] for dx in directions])
    return worst(
        (
            compare_all(
                "Hessian products", products, [np.stack(p) for p in expected], small, DERIVATIVE
            ),
            compare("tangents", tangents, moved, small, DERIVATIVE),
        )
    )


CHECKS = (
    Check(
        vmap_equals_loop, "vmap(f) = f, example by example", "vmap_ignored", ("vmap",), once=True
    ),
    Check(
        vmap_of_derivatives,
        "vmap(vjp f)",
        "vmap_ignored_in_gradient",
        ("vmap", "vjp"),
        once=True,
        quick=False,
    ),
    Check(
        vmap_of_hessian_product,
        "vmap(hvp f)",
        "second_order_dropped",
        ("vmap", *SECOND),
        once=True,
        quick=False,
    ),
)
