"""Taylor's theorem: f(x + h u) less its first k terms must fall as h^(k+1).

No oracle and no tolerance: wrong derivatives show as a wrong rate. The step starts at
h = 0.1 / √(1 + c), c the variance of the scores, and is halved while the remainder stands
1000 times above roundoff.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, bounded, compare
from .derivatives import inner
from .oracle import expand, pair
from .problem import Problem, with_inputs
from .subject import Subject, run_on
from .tolerances import DIFFERENCE, RATE


def taylor_value(subject: Subject, given: Problem) -> Measurement:
    """Order 0: f(x + h u) - f(x) = O(h), rate at least 0.9: out is continuous.

    A rate needs no tolerance but its own 0.1.

    R₀(h) = O(h). Kills quantised_out.
    """
    return _rate(subject, given, [])


def taylor_gradient(subject: Subject, given: Problem) -> Measurement:
    """Order 1: less h <gradient, u> it is O(h²), rate at least 1.9, on two halvings in a row.

    R₁(h) = O(h²). Kills gradient_without_row_sum.
    """
    gradient = run_on(subject, calculus.pull, given, given.cotangent)
    return _rate(subject, given, [inner(gradient, given.tangent)[0]])


def taylor_hessian(subject: Subject, given: Problem) -> Measurement:
    """Order 2: less h²/2 <u, H u> as well it is O(h³), rate at least 2.9.

    On two halvings in a row, above roundoff.

    R₂(h) = O(h³). Kills second_order_dropped.
    """
    return _rate(subject, given, _terms(subject, given)[:2])


def taylor_third(subject: Subject, given: Problem) -> Measurement:
    """Order 3: less h³/6 D³[u, u, u] as well it is O(h⁴), rate at least 3.9.

    On two halvings in a row, above roundoff.

    R₃(h) = O(h⁴). Kills third_order_dropped.
    """
    return _rate(subject, given, _terms(subject, given))


def central_difference(subject: Subject, given: Problem) -> Measurement:
    """<gradient, u> = (8 (f₁ - f₋₁) - (f₂ - f₋₂)) / 12h, f_k = f(x + k h u), to 1e8 u.

    Sees a gradient wrong by 1e-6, a thousand times finer than an ordinary gradient check. One
    difference for each argument. The step h = u^(1/5) / 4 balances h⁴ against u / h.

    ⟨∇, u⟩ = central difference. Kills gradient_off_by_a_millionth.
    """
    gradient = run_on(subject, calculus.pull, given, given.cotangent)
    step = given.unit**0.2 / 4
    size = max(inner([g], [u])[1] for g, u in zip(gradient, given.tangent, strict=True))
    got, expected = [], []
    for position in range(3):
        only = [u if i == position else u * 0 for i, u in enumerate(given.tangent)]
        f = [_along(subject, given, only, k * step) for k in (-2, -1, 1, 2)]
        expected.append((8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * step))
        got.append(inner([gradient[position]], [given.tangent[position]])[0])
    return compare(
        "<gradient, u> [argument]", np.array(got), np.array(expected), given, DIFFERENCE, size
    )


def _terms(subject: Subject, given: Problem) -> list[float]:
    """First, second and third derivative of <e, f(x + h u)> at h = 0; the third if claimed."""
    gradient = run_on(subject, calculus.pull, given, given.cotangent)
    directions = (given.tangent, given.cotangent)
    found = [gradient, run_on(subject, calculus.forward_over_reverse, given, *directions)]
    if "third_order" in subject.features:
        found.append(run_on(subject, calculus.third, given, *directions))
    return [inner(arrays, given.tangent)[0] for arrays in found]


def _along(subject: Subject, given: Problem, direction: Sequence[np.ndarray], step: float) -> float:
    query, key, value = (x + step * u for x, u in zip(given.x, direction, strict=True))
    out = run_on(subject, calculus.value, with_inputs(given, query, key, value))
    return inner([out], [given.cotangent])[0]


def _rate(subject: Subject, given: Problem, terms: Sequence[float]) -> Measurement:
    """The smaller of the last two rates log2(R(h) / R(h/2)) that stand above roundoff."""
    query, key, _ = expand(given.x)
    variance = float(np.var(pair(query, key))) / given.shape.H
    steps = [0.1 / math.sqrt(1 + variance) / 2**k for k in range(14)]
    out = run_on(subject, calculus.value, given)
    start, size = inner([out], [given.cotangent])
    remainders = []
    for step in steps:
        taylor = start + sum(t * step**k / math.factorial(k) for k, t in enumerate(terms, 1))
        remainders.append(abs(_along(subject, given, given.tangent, step) - taylor))
    above = [r for r in remainders if not r <= 1e3 * given.unit * size]  # keeps NaN
    rates = [
        math.log2(a / b) if b > 0 else math.inf for a, b in zip(above, above[1:], strict=False)
    ]
    wanted, last = len(terms) + 0.9, rates[-2:]
    if math.isnan(sum(remainders)):
        last = [-math.inf]
    # Fewer than two halvings above roundoff: the remainder is roundoff, and nothing is wrong.
    got = min(last) if len(last) == 2 or -math.inf in last else wanted
    return bounded(f"{wanted} - rate", wanted - got, 0.0, RATE.reason, got, wanted)


CHECKS = (
    Check(taylor_value, "R₀(h) = O(h)", "quantised_out", once=True, quick=False),
    Check(taylor_gradient, "R₁(h) = O(h²)", "gradient_without_row_sum", ("vjp",), once=True),
    Check(taylor_hessian, "R₂(h) = O(h³)", "second_order_dropped", ("second_order",), once=True),
    Check(
        taylor_third,
        "R₃(h) = O(h⁴)",
        "third_order_dropped",
        ("second_order", "third_order"),
        once=True,
        quick=False,
    ),
    Check(
        central_difference,
        "⟨∇, u⟩ = central difference",
        "gradient_off_by_a_millionth",
        ("vjp",),
        once=True,
    ),
)
