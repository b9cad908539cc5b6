"""First derivatives: against the oracle's formulas, and jvp and vjp against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .problem import Problem, other
from .subject import Subject, run, run_on
from .tolerances import DERIVATIVE, EXACT, SUM


def gradient_oracle(subject: Subject, given: Problem) -> Measurement:
    """vjp equals D = e.o, S = P (e.v - D), dq = σ S k, dk = σ S q, dv = P e, in float64 NumPy.

    9e3 u: three rounded factors and a sum with cancellation. (FlashAttention-2, section 3.1.)

    q̄ = σ S k, k̄ = σ Sᵀ q, v̄ = Pᵀ e; S = P ∘ (e vᵀ - D). Kills gradient_without_row_sum.
    """
    at = oracle.softmax(given.x, given.mask)
    expected = oracle.adjoint(at, given.cotangent)
    got = run_on(subject, calculus.pull, given, given.cotangent)
    return compare_all("gradient", got, expected, given, DERIVATIVE)


def tangent_oracle(subject: Subject, given: Problem) -> Measurement:
    """jvp equals do = Σ P (ds v + dv) - (Σ P ds) o, ds = σ (dq k + q dk). 9e3 u.

    out˙ = Σ P (ṡ v + v̇) - (Σ P ṡ) out. Kills tangent_without_lse.
    """
    expected, _ = oracle.tangent(oracle.softmax(given.x, given.mask), given.tangent)
    got = run_on(subject, calculus.push, given, given.tangent)
    return compare("tangent", got, expected, given, DERIVATIVE)


def lse_derivatives(subject: Subject, given: Problem) -> Measurement:
    """Gradient, tangent and Hessian product of (out, lse) together equal the oracle's. 9e3 u.

    The cotangent of lse only shifts D; treating lse as a constant residual drops it silently.

    (ē, λ) shifts D to D - λ. Kills lse_gradient_dropped.
    """
    at = oracle.softmax(given.x, given.mask)
    both = (given.cotangent, given.lse_cotangent)
    mask = given.mask
    got = run(subject, calculus.pull, given.x, both, mask=mask, lse=True)
    found = [compare_all("gradient", got, oracle.adjoint(at, *both), given, DERIVATIVE)]
    if "jvp" in subject.features:
        got = run(subject, calculus.push, given.x, given.tangent, mask=mask, lse=True)
        expected = oracle.tangent(at, given.tangent)
        found += [compare("tangent", got[i], expected[i], given, DERIVATIVE) for i in (0, 1)]
    if "second_order" in subject.features:
        operation = calculus.forward_over_reverse
        got = run(subject, operation, given.x, given.tangent, both, mask=mask, lse=True)
        expected = oracle.hessian(at, given.tangent, *both)
        found.append(compare_all("Hessian product", got, expected, given, DERIVATIVE))
    return worst(found)


def adjoint(subject: Subject, given: Problem) -> Measurement:
    """<J dx, e> = <dx, J^T e>: jvp and vjp are each other's transpose. 64 u of Σ|terms|.

    Essential once the two are separate kernels; needs no oracle.

    ⟨J u, e⟩ = ⟨u, Jᵀ e⟩. Kills jvp_and_vjp_apart.
    """
    moved = run_on(subject, calculus.push, given, given.tangent)
    gradients = run_on(subject, calculus.pull, given, given.cotangent)
    left, size = inner([moved], [given.cotangent])
    right, other_size = inner(gradients, given.tangent)
    return compare("<J dx, e> - <dx, Jᵀ e>", left, right, given, SUM, max(size, other_size))


def jacobians(subject: Subject, given: Problem) -> Measurement:
    """The Jacobian by columns (jvp) equals the Jacobian by rows (vjp), on 3 tokens. 9e3 u.

    All of it, so that an entry that is wrong has nowhere to hide.

    jacfwd = jacrev. Kills jvp_and_vjp_apart.
    """
    small = other(given, batch=(1,), T=3, S=3)
    by_rows = _rows(subject, small)
    by_columns = _columns(subject, small)
    return compare("entry [output, input]", by_columns, by_rows, given, DERIVATIVE)


def one_hot_cotangents(subject: Subject, given: Problem) -> Measurement:
    """The gradient of every single output number equals the oracle's, on 3 tokens. 9e3 u.

    ∇ out_k for every k. Kills last_head_without_gradient.
    """
    small = other(given, batch=(1,), T=3, S=3)
    at = oracle.softmax(small.x, small.mask)
    expected = np.stack([_flat(oracle.adjoint(at, hot)) for hot in one_hots(small.cotangent)])
    return compare("entry [output, input]", _rows(subject, small), expected, given, DERIVATIVE)


def zero_cotangent(subject: Subject, given: Problem) -> Measurement:
    """A zero cotangent gives exactly zero gradients, and a zero tangent exactly zero tangents.

    e = 0 gives gradients 0. Kills weight_decay_in_gradient.
    """
    nothing = run_on(subject, calculus.pull, given, given.cotangent * 0)
    found = [compare_all("gradient of cotangent 0", nothing, [0.0] * 3, given, EXACT)]
    if "jvp" in subject.features:
        still = run_on(subject, calculus.push, given, tuple(array * 0 for array in given.x))
        found.append(compare("tangent along 0", still, 0.0, given, EXACT, 1.0))
    return worst(found)


def inner(left: Any, right: Any) -> tuple[float, float]:
    """<left, right> over all arrays in float64, and the sum of the absolute values of its terms."""
    terms = [
        np.asarray(a, np.float64) * np.asarray(b, np.float64)
        for a, b in zip(left, right, strict=True)
    ]
    return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)


def one_hots(like: np.ndarray) -> list[np.ndarray]:
    """All arrays of this shape with a single 1."""
    return list(np.eye(like.size, dtype=like.dtype).reshape(like.size, *like.shape))


def _flat(arrays: Any) -> np.ndarray:
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])


def _rows(subject: Subject, small: Problem) -> np.ndarray:
    hots = one_hots(small.cotangent)
    return np.stack([_flat(run_on(subject, calculus.pull, small, hot)) for hot in hots])


def _columns(subject: Subject, small: Problem) -> np.ndarray:
    columns = []
    for position, array in enumerate(small.x):
        for hot in one_hots(array):
            dx = tuple(hot if i == position else small.x[i] * 0 for i in range(3))
            columns.append(_flat([run_on(subject, calculus.push, small, dx)]))
    return np.stack(columns, axis=1)


CHECKS = (
    Check(
        gradient_oracle,
        "q̄ = σ S k, k̄ = σ Sᵀ q, v̄ = Pᵀ e; S = P ∘ (e vᵀ - D)",
        "gradient_without_row_sum",
        ("vjp",),
    ),
    Check(tangent_oracle, "out˙ = Σ P (ṡ v + v̇) - (Σ P ṡ) out", "tangent_without_lse", ("jvp",)),
    Check(
        lse_derivatives,
        "(ē, λ) shifts D to D - λ",
        "lse_gradient_dropped",
        ("lse", "vjp"),
        once=True,
    ),
    Check(adjoint, "⟨J u, e⟩ = ⟨u, Jᵀ e⟩", "jvp_and_vjp_apart", ("jvp", "vjp")),
    Check(jacobians, "jacfwd = jacrev", "jvp_and_vjp_apart", ("jvp", "vjp"), once=True),
    Check(
        one_hot_cotangents, "∇ out_k for every k", "last_head_without_gradient", ("vjp",), once=True
    ),
    Check(zero_cotangent, "e = 0 gives gradients 0", "weight_decay_in_gradient", ("vjp",)),
)
