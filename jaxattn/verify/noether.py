"""Noether identities: each symmetry of attention is an exact identity of its gradients.

They hold at every input and in every dtype, need no oracle, no second evaluation and no
differences, and are so sharp that a gradient wrong in the sixth digit fails them. e is the
cotangent of out, λ that of lse; a bar marks a gradient. Tolerance: 64 u of the sum of the
absolute values of the terms. (E. Noether, 1918, in finite dimensions.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, compare, worst
from .problem import Problem
from .subject import Subject, run, run_on
from .tolerances import EXACT, SUM


def noether_value_sum(subject: Subject, given: Problem) -> Measurement:
    """Σ_j v̄_j = Σ_i ē_i, from v + c giving out + c. No dropout, no sink.

    64 u of Σ|terms|: the order of the sum is free.

    Σ_j v̄_j = Σ_i ē_i. Kills gradient_off_by_a_millionth.
    """
    value = _gradients(subject, given)[2]
    return _sums("Σ_j v̄_j", value, given.cotangent, given)


def noether_key_sum(subject: Subject, given: Problem) -> Measurement:
    """Σ_j k̄_j = 0, from k + c leaving out alone. Any mask, any bias.

    64 u of Σ|terms|: the terms cancel.

    Σ_j k̄_j = 0. Kills gradient_without_row_sum.
    """
    key = _gradients(subject, given)[1]
    terms = np.asarray(key, np.float64)
    scale = float(np.abs(terms).sum(-3).max())
    return compare("Σ_j k̄_j", terms.sum(-3), 0.0, given, SUM, scale)


def noether_query_key(subject: Subject, given: Problem) -> Measurement:
    """Σ_i q_i q̄_iᵀ = Σ_j k̄_j k_jᵀ as H × H matrices, from (q A, k A⁻ᵀ). Always. 64 u of Σ|terms|.

    qᵀ q̄ = k̄ᵀ k. Kills key_gradient_without_scale.
    """
    query, key, _ = _gradients(subject, given)
    return _outer("qᵀ q̄ - k̄ᵀ k", (given.query, query), (key, given.key), given)


def noether_value_out(subject: Subject, given: Problem) -> Measurement:
    """Σ_j v_j v̄_jᵀ = Σ_i out_i ē_iᵀ as Hv × Hv matrices, from v A giving out A. Always.

    64 u of Σ|terms|.

    vᵀ v̄ = outᵀ ē. Kills gradient_off_by_a_millionth.
    """
    out = run_on(subject, calculus.value, given)
    value = _gradients(subject, given)[2]
    return _outer("vᵀ v̄ - outᵀ ē", (given.value, value), (out, given.cotangent), given)


def noether_lse(subject: Subject, given: Problem) -> Measurement:
    """For a cotangent λ of lse alone: Σ_j k̄_j = σ Σ_i λ_i q_i, and v̄ = 0 exactly.

    64 u of Σ|terms|.

    λ of lse: Σ_j k̄_j = σ Σ_i λ_i q_i, v̄ = 0. Kills lse_gradient_dropped.
    """
    cotangent = (given.cotangent * 0, given.lse_cotangent)
    _, key, value = run(subject, calculus.pull, given.x, cotangent, mask=given.mask, lse=True)
    scaled = given.query.astype(np.float64) * given.lse_cotangent[..., None] / given.shape.H**0.5
    return worst(
        (
            _sums("Σ_j k̄_j", key, scaled, given),
            compare("v̄", value, 0.0, given, EXACT, 1.0),
        )
    )


def noether_bias(subject: Subject, given: Problem) -> Measurement:
    """Σ_j b̄_ij = λ_i (0 without lse), from s_i + c_i: the rows of the bias's gradient.

    64 u of Σ|terms|: the terms cancel.

    Σ_j b̄_ij = λ_i. Kills bias_gradient_missing.
    """
    sizes = (1, given.shape.N, given.shape.T, given.shape.S)
    bias = np.random.default_rng(given.seed).standard_normal(sizes).astype(given.dtype)
    lse = "lse" in subject.features
    cotangent: Any = (given.cotangent, given.lse_cotangent) if lse else given.cotangent
    x = (*given.x, bias)
    gradients = run(subject, calculus.pull, x, cotangent, mask=given.mask, lse=lse, fourth="bias")
    terms = np.asarray(gradients[3], np.float64)
    batch = tuple(range(len(given.shape.batch)))
    expected = given.lse_cotangent.astype(np.float64).sum(batch).T if lse else 0.0
    scale = float(np.abs(terms).sum(-1).max())
    found = [compare("Σ_j b̄_ij", terms.sum(-1)[0], expected, given, SUM, scale)]
    blank = float(not np.any(terms))
    found.append(compare("bias without a gradient", blank, 0.0, given, EXACT, 1.0))
    return worst(found)


def noether_euler(subject: Subject, given: Problem) -> Measurement:
    """<q, q̄> = <k, k̄>, and = σ σ̄ where the scale can be differentiated: (c q, k / c).

    64 u of Σ|terms|.

    ⟨q, q̄⟩ = ⟨k, k̄⟩ = σ σ̄. Kills scale_gradient_missing.
    """
    query, key, _ = _gradients(subject, given)
    terms = [np.asarray(g, np.float64) * x for g, x in ((query, given.query), (key, given.key))]
    left, right = (float(t.sum()) for t in terms)
    size = max(float(np.abs(t).sum()) for t in terms)
    found = [compare("<q, q̄> - <k, k̄>", left, right, given, SUM, size)]
    if "scale" in subject.features:
        scale = np.asarray(0.7, given.dtype)
        x = (*given.x, scale)
        gradients = run(subject, calculus.pull, x, given.cotangent, mask=given.mask, fourth="scale")
        terms = np.asarray(gradients[0], np.float64) * given.query
        product = float(gradients[3]) * float(scale)
        size = float(np.abs(terms).sum())
        found.append(compare("σ σ̄ - <q, q̄>", product, float(terms.sum()), given, SUM, size))
    return worst(found)


def _gradients(subject: Subject, given: Problem) -> Any:
    return run_on(subject, calculus.pull, given, given.cotangent)


def _sums(what: str, left: Any, right: Any, given: Problem) -> Measurement:
    """Sums over tokens of two arrays, on the scale of their absolute values."""
    left, right = (np.asarray(array).astype(np.float64) for array in (left, right))
    scale = float(max(np.abs(left).sum(-3).max(), np.abs(right).sum(-3).max()))
    return compare(what, left.sum(-3), right.sum(-3), given, SUM, scale)


def _outer(what: str, left: Any, right: Any, given: Problem) -> Measurement:
    """Two sums of outer products a_i b_iᵀ over tokens, on the scale of their absolute values."""
    both = [[np.asarray(array).astype(np.float64) for array in pair] for pair in (left, right)]
    products = [np.einsum("...tna,...tnb->...nab", a, b) for a, b in both]
    sizes = [np.einsum("...tna,...tnb->...nab", abs(a), abs(b)).max() for a, b in both]
    return compare(what, products[0], products[1], given, SUM, float(max(sizes)))


CHECKS = (
    Check(noether_value_sum, "Σ_j v̄_j = Σ_i ē_i", "gradient_off_by_a_millionth", ("vjp",)),
    Check(noether_key_sum, "Σ_j k̄_j = 0", "gradient_without_row_sum", ("vjp",)),
    Check(noether_query_key, "qᵀ q̄ = k̄ᵀ k", "key_gradient_without_scale", ("vjp",)),
    Check(noether_value_out, "vᵀ v̄ = outᵀ ē", "gradient_off_by_a_millionth", ("vjp",)),
    Check(
        noether_lse,
        "λ of lse: Σ_j k̄_j = σ Σ_i λ_i q_i, v̄ = 0",
        "lse_gradient_dropped",
        ("lse", "vjp"),
        brief=True,
    ),
    Check(noether_bias, "Σ_j b̄_ij = λ_i", "bias_gradient_missing", ("bias", "vjp"), brief=True),
    Check(noether_euler, "⟨q, q̄⟩ = ⟨k, k̄⟩ = σ σ̄", "scale_gradient_missing", ("vjp",), brief=True),
)
