"""Compositions: losses and operators that hold derivatives, as users write them.

A derivative inside a loss, a Laplacian, a third derivative; three or four tokens, the widest dtype
only, against the oracle's closed forms.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .derivatives import inner, one_hots
from .problem import Problem
from .small import small_problem, tiny_problem
from .subject import Subject, run_on
from .tolerances import DERIVATIVE, DIFFERENCE

ALL = (0, 1, 2)
SECOND = ("jvp", "vjp", "second_order")


def _loss_with_jvp(attend: Any, x: Any, dx: Any, e: Any) -> Any:
    def flow(*x: Any) -> Any:
        moved = calculus.push(attend, x, dx)
        return calculus.inner(moved, moved) / 2

    def penalty(*x: Any) -> Any:
        gradients = calculus.pull(attend, x, e)
        return calculus.inner(gradients, gradients) / 2

    return jax.grad(flow, ALL)(*x), jax.grad(penalty, ALL)(*x)


def loss_with_jvp(subject: Subject, given: Problem) -> Measurement:
    """∇ ½|J dx|² = H(dx; J dx) and ∇ ½|∇φ|² = H ∇φ: losses that hold a derivative.

    The first is what MeanFlow and consistency training do, the second a gradient penalty. 9e3 u:
    cancelling sums.

    ∇ ½|J u|², ∇ ½|∇φ|². Kills second_order_dropped.
    """
    small = small_problem(given)

    flow, penalty = run_on(subject, _loss_with_jvp, small, small.tangent, small.cotangent)
    at = oracle.softmax(small.x, small.mask)
    moved, gradients = oracle.tangent(at, small.tangent)[0], oracle.adjoint(at, small.cotangent)
    return worst(
        (
            compare_all(
                "∇ ½|J dx|²", flow, oracle.hessian(at, small.tangent, moved), small, DERIVATIVE
            ),
            compare_all(
                "∇ ½|∇φ|²",
                penalty,
                oracle.hessian(at, gradients, small.cotangent),
                small,
                DERIVATIVE,
            ),
        )
    )


def _forward_laplacian(attend: Any, x: Any, directions: Any) -> Any:
    def second(direction: Any) -> Any:
        dx = (direction, *(jnp.zeros_like(array) for array in x[1:]))
        return calculus.forward_over_forward(attend, x, dx, dx)

    return jax.vmap(second)(directions).sum(0)


def forward_laplacian(subject: Subject, given: Problem) -> Measurement:
    """Σ_e D² out[e, e] over all directions e of the query: jvp of jvp under vmap, summed.

    9e3 u: cancelling sums.

    Σ_e D² f[e, e]. Kills weights_frozen_in_tangent.
    """
    tiny = tiny_problem(given)
    hots, rest = np.stack(one_hots(tiny.query)), (tiny.key * 0, tiny.value * 0)

    at = oracle.softmax(tiny.x, tiny.mask)
    expected = sum(oracle.mixed(at, (hot, *rest), (hot, *rest)) for hot in hots)
    return compare(
        "Laplacian", run_on(subject, _forward_laplacian, tiny, hots), expected, tiny, DERIVATIVE
    )


def _third_derivatives(attend: Any, x: Any, dx: Any) -> Any:
    return jax.jvp(lambda *x: calculus.forward_over_forward(attend, x, dx, dx), x, dx)[1]


def third_derivatives(subject: Subject, given: Problem) -> Measurement:
    """D³ <e, out> along dx, by jvp³ and by jvp² of vjp, equals the slope of the oracle's <u, H u>.

    The slope is a fourth-order difference, right to 1e8 u; the two agree to 9e3 u.

    D³: jvp³ = jvp²∘vjp. Kills third_order_dropped.
    """
    small = small_problem(given)

    def curvature(step: float) -> float:
        moved = [
            array.astype(np.float64) + step * u
            for array, u in zip(small.x, small.tangent, strict=True)
        ]
        product = oracle.hessian(oracle.softmax(moved, small.mask), small.tangent, small.cotangent)
        return inner(product, small.tangent)[0]

    pushed = run_on(subject, _third_derivatives, small, small.tangent)
    pulled = run_on(subject, calculus.third, small, small.tangent, small.cotangent)
    left, size = inner([pushed], [small.cotangent])
    right, other_size = inner(pulled, small.tangent)
    size, step = max(size, other_size), 1e-3
    slope = 8 * (curvature(step) - curvature(-step)) - (curvature(2 * step) - curvature(-2 * step))
    return worst(
        (
            compare("jvp³ - jvp² of vjp", left, right, small, DERIVATIVE, size),
            compare("jvp³ - slope of <u, H u>", left, slope / (12 * step), small, DIFFERENCE, size),
        )
    )


CHECKS = (
    Check(
        loss_with_jvp, "∇ ½|J u|², ∇ ½|∇φ|²", "second_order_dropped", SECOND, once=True, quick=False
    ),
    Check(
        forward_laplacian,
        "Σ_e D² f[e, e]",
        "weights_frozen_in_tangent",
        ("vmap", *SECOND),
        once=True,
        quick=False,
    ),
    Check(
        third_derivatives,
        "D³: jvp³ = jvp²∘vjp",
        "third_order_dropped",
        (*SECOND, "third_order"),
        once=True,
        quick=False,
    ),
)
