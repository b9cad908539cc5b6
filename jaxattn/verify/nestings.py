"""Nestings: derivatives of derivatives as users write them, against the oracle's closed forms.

Three or four tokens, the widest dtype only, 9e3 u: nestings do not depend on size or precision.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .derivatives import one_hots
from .problem import Problem
from .small import small_problem, tiny_problem
from .subject import Subject, run_on
from .tolerances import DERIVATIVE

ALL = (0, 1, 2)


def _jacfwd_and_jacrev(attend: Any, x: Any) -> Any:
    return jax.jacfwd(attend, ALL)(*x), jax.jacrev(attend, ALL)(*x)


def jacfwd_and_jacrev(subject: Subject, given: Problem) -> Measurement:
    """jax.jacfwd and jax.jacrev, which vmap over one-hot directions, equal the oracle's rows.

    9e3 u: cancelling sums.

    jacfwd f, jacrev f. Kills tangent_without_key.
    """
    tiny = tiny_problem(given)
    at = oracle.softmax(tiny.x, tiny.mask)
    rows = zip(*(oracle.adjoint(at, hot) for hot in one_hots(tiny.cotangent)), strict=True)
    expected = [np.stack(r).reshape(*tiny.cotangent.shape, *r[0].shape) for r in rows]

    got = run_on(subject, _jacfwd_and_jacrev, tiny)
    names = ("jacfwd", "jacrev")
    return worst(
        compare_all(n, g, expected, tiny, DERIVATIVE) for n, g in zip(names, got, strict=True)
    )


def _hessian_four_ways(attend: Any, x: Any, e: Any) -> Any:
    def scalar(query: Any) -> Any:
        return calculus.inner(attend(query, *x[1:]), e)

    modes = (jax.jacfwd, jax.jacrev)
    return [outer(inside(scalar))(x[0]) for outer in modes for inside in modes]


def hessian_four_ways(subject: Subject, given: Problem) -> Measurement:
    """The whole Hessian of <e, out> in the query by jacfwd and jacrev in all four orders.

    9e3 u: cancelling sums.

    hessian, four ways. Kills second_order_dropped.
    """
    tiny = tiny_problem(given)
    at, rest = oracle.softmax(tiny.x, tiny.mask), (tiny.key * 0, tiny.value * 0)
    expected = np.stack(
        [oracle.hessian(at, (hot, *rest), tiny.cotangent)[0] for hot in one_hots(tiny.query)]
    )

    names = ("fwd∘fwd", "fwd∘rev", "rev∘fwd", "rev∘rev")
    got = run_on(subject, _hessian_four_ways, tiny, tiny.cotangent)
    return worst(
        compare(name, matrix.reshape(expected.shape), expected, tiny, DERIVATIVE)
        for name, matrix in zip(names, got, strict=True)
    )


def _linearize_and_transpose(attend: Any, x: Any, dx: Any, e: Any) -> Any:
    _, linear = jax.linearize(attend, *x)
    return linear(*dx), jax.linear_transpose(linear, *x)(e)


def linearize_and_transpose(subject: Subject, given: Problem) -> Measurement:
    """jax.linearize gives the tangent map, and jax.linear_transpose of it the gradient.

    9e3 u: cancelling sums.

    linearize, linear_transpose. Kills tangent_without_key.
    """
    small = small_problem(given)

    moved, gradients = run_on(
        subject, _linearize_and_transpose, small, small.tangent, small.cotangent
    )
    at = oracle.softmax(small.x, small.mask)
    tangent, _ = oracle.tangent(at, small.tangent)
    return worst(
        (
            compare("linearize", moved, tangent, small, DERIVATIVE),
            compare_all(
                "linear_transpose",
                gradients,
                oracle.adjoint(at, small.cotangent),
                small,
                DERIVATIVE,
            ),
        )
    )


BOTH, SECOND = ("jvp", "vjp"), ("jvp", "vjp", "second_order")
CHECKS = (
    Check(
        jacfwd_and_jacrev,
        "jacfwd f, jacrev f",
        "tangent_without_key",
        ("vmap", *BOTH),
        once=True,
        quick=False,
    ),
    Check(
        hessian_four_ways,
        "hessian, four ways",
        "second_order_dropped",
        ("vmap", *SECOND),
        once=True,
        quick=False,
    ),
    Check(
        linearize_and_transpose,
        "linearize, linear_transpose",
        "tangent_without_key",
        BOTH,
        once=True,
    ),
)
