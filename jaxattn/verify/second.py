"""Second derivatives: against the oracle's closed forms, and the nestings against each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .derivatives import inner
from .problem import Problem
from .small import small_problem
from .subject import Subject, run_on
from .tolerances import DERIVATIVE, SUM

NESTINGS = (
    calculus.forward_over_reverse,
    calculus.reverse_over_reverse,
    calculus.reverse_over_forward,
)


def hessian_oracle(subject: Subject, given: Problem) -> Measurement:
    """The Hessian of <e, out> times a direction, from its closed form. 9e3 u.

    Hessian of ⟨e, out⟩ times u, closed form. Kills second_order_dropped.
    """
    at = oracle.softmax(given.x, given.mask)
    expected = oracle.hessian(at, given.tangent, given.cotangent)
    got = run_on(subject, calculus.forward_over_reverse, given, given.tangent, given.cotangent)
    return compare_all("Hessian product", got, expected, given, DERIVATIVE)


def hessian_nestings(subject: Subject, given: Problem) -> Measurement:
    """Forward over reverse = reverse over reverse = reverse over forward. 9e3 u.

    A rule that is right at first order only is wrong in one of the three.

    H u: fwd∘rev = rev∘rev = rev∘fwd. Kills weights_frozen_in_tangent.
    """
    directions = (given.tangent, given.cotangent)
    first, *others = (run_on(subject, nesting, given, *directions) for nesting in NESTINGS)
    return worst(
        compare_all(nesting.__name__.replace("_", " "), got, first, given, DERIVATIVE)
        for nesting, got in zip(NESTINGS[1:], others, strict=True)
    )


def hessian_symmetry(subject: Subject, given: Problem) -> Measurement:
    """<H u, w> = <u, H w>, for each nesting. 64 u of Σ|terms|; needs no oracle.

    ⟨H u, w⟩ = ⟨u, H w⟩. Kills weights_frozen_in_tangent.
    """
    found = []
    for nesting in NESTINGS:
        first = run_on(subject, nesting, given, given.tangent, given.cotangent)
        second = run_on(subject, nesting, given, given.second_tangent, given.cotangent)
        left, size = inner(first, given.second_tangent)
        right, other_size = inner(second, given.tangent)
        what = f"<H u, w> - <u, H w>, {nesting.__name__.replace('_', ' ')}"
        found.append(compare(what, left, right, given, SUM, max(size, other_size)))
    return worst(found)


def mixed_second(subject: Subject, given: Problem) -> Measurement:
    """jvp of jvp equals its closed form, and <e, D² out[u, w]> = <w, H u>. 9e3 u.

    ⟨e, D² out[u, w]⟩ = ⟨w, H u⟩. Kills weights_frozen_in_tangent.
    """
    at = oracle.softmax(given.x, given.mask)
    directions = (given.tangent, given.second_tangent)
    got = run_on(subject, calculus.forward_over_forward, given, *directions)
    expected = oracle.mixed(at, *directions)
    product = oracle.hessian(at, given.tangent, given.cotangent)
    left, size = inner([got], [given.cotangent])
    right, _ = inner(product, given.second_tangent)
    return worst(
        (
            compare("D² out[u, w]", got, expected, given, DERIVATIVE),
            compare("<e, D² out[u, w]>", left, right, given, DERIVATIVE, size),
        )
    )


def _hessian_in_scan(attend: Any, x: Any, dx: Any) -> Any:
    def energy(queries: Any, *memory: Any) -> Any:
        def add(total: Any, query: Any) -> tuple[Any, None]:
            out = attend(query, *memory)
            return total + calculus.inner(out, out) / 2, None

        return jax.lax.scan(add, jnp.zeros((), queries.dtype), queries)[0]

    gradient = jax.grad(energy, (0, 1, 2))
    reverse = jax.grad(lambda *x: calculus.inner(gradient(*x), dx), (0, 1, 2))
    return jax.jvp(gradient, x, dx)[1], reverse(*x)


def hessian_in_scan(subject: Subject, given: Problem) -> Measurement:
    """The Hessian of Σ |out|² / 2, which jax.lax.scan sums over two queries, times a direction.

    9e3 u: cancelling sums. Some versions of JAX differentiate the code of a custom rule there, in
    place of the rule.

    H u through scan. Kills second_order_dropped.
    """
    small = small_problem(given)
    queries = np.stack([small.query, small.second_tangent[0]])
    moves = np.stack([small.tangent[0], small.query])
    dx = (moves, *small.tangent[1:])

    got = run_on(subject, _hessian_in_scan, replace(small, query=queries), dx)
    each = []
    for query, move in zip(queries, moves, strict=True):
        at, direction = oracle.softmax((query, *small.x[1:]), small.mask), (move, *dx[1:])
        curved = oracle.hessian(at, direction, at.out)
        straight = oracle.adjoint(at, oracle.tangent(at, direction)[0])
        each.append([a + b for a, b in zip(curved, straight, strict=True)])
    query, key, value = zip(*each, strict=True)
    expected = (np.stack(query), sum(key), sum(value))
    names = ("fwd∘rev in scan", "rev∘rev in scan")
    return worst(
        compare_all(name, parts, expected, small, DERIVATIVE)
        for name, parts in zip(names, got, strict=True)
    )


CHECKS = (
    Check(
        hessian_oracle,
        "Hessian of ⟨e, out⟩ times u, closed form",
        "second_order_dropped",
        ("second_order",),
        brief=True,
    ),
    Check(
        hessian_nestings,
        "H u: fwd∘rev = rev∘rev = rev∘fwd",
        "weights_frozen_in_tangent",
        ("second_order", "jvp"),
        once=True,
        quick=False,
    ),
    Check(
        hessian_symmetry,
        "⟨H u, w⟩ = ⟨u, H w⟩",
        "weights_frozen_in_tangent",
        ("second_order", "jvp"),
        once=True,
        quick=False,
    ),
    Check(
        mixed_second,
        "⟨e, D² out[u, w]⟩ = ⟨w, H u⟩",
        "weights_frozen_in_tangent",
        ("second_order", "jvp"),
        once=True,
    ),
    Check(
        hessian_in_scan,
        "H u through scan",
        "second_order_dropped",
        ("second_order", "vjp"),
        once=True,
        quick=False,
    ),
)
