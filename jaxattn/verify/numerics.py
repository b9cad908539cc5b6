"""Numerics: peaked, huge and tiny inputs, judged in units of a dense attention's own error."""

from __future__ import annotations

import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, worst
from .problem import Problem, other, with_inputs
from .subject import Subject, run_on
from .tolerances import EXACT
from .values import against_dense


def peaked_scores(subject: Subject, given: Problem) -> Measurement:
    """Scores of standard deviation 8 and 30, where weights are near 0 and 1; 64 tokens.

    The error at 30 is 30 times that at 1 for everybody, so it is measured in units of the error of
    a dense attention in the same dtype: at most twice that, plus 4 u.

    |out - out*| ≤ 2 |dense - out*| + 4 u |out*|. Kills rounded_scores.
    """
    found = []
    for deviation in (1.0, 8.0, 30.0):
        peaked = other(given, deviation=deviation, batch=(1,), T=64, S=64)
        expected = oracle.softmax(peaked.x, peaked.mask).out
        got = run_on(subject, calculus.value, peaked)
        found.append(against_dense(f"out, deviation {deviation:g}", got, expected, peaked))
    return worst(found)


def extreme_scores(subject: Subject, given: Problem) -> Measurement:
    """All scores near +1800, and near -1800: exp of either is inf or 0 unless shifted first.

    Bound as for the oracle. It follows the conditioning of the input.

    scores of ±1800 are as good as any. Kills exp_without_maximum.
    """
    found = []
    size = 60.0 / given.shape.H**0.25  # 60² / √H * H / √H = 3600 / √H for scores
    for sign in (1.0, -1.0):
        query, key = np.full_like(given.query, size), np.full_like(given.key, sign * size)
        large = with_inputs(given, query=query, key=key + given.key / 64)
        expected = oracle.softmax(large.x, large.mask).out
        got = run_on(subject, calculus.value, large)
        found.append(against_dense(f"out, scores near {sign * 3600:+g}", got, expected, large))
    return worst(found)


def scaled_values(subject: Subject, given: Problem) -> Measurement:
    """f(q, k, 2^±40 v) = 2^±40 f(q, k, v), bit for bit: a power of two only moves exponents.

    f(q, k, 2ⁿ v) = 2ⁿ f(q, k, v). Kills value_clipped.
    """
    base = np.asarray(run_on(subject, calculus.value, given), np.float64)
    found = []
    for power in (40, -40) if given.dtype.itemsize > 2 else (3, -3):
        factor = 2.0**power
        value = given.value.astype(np.float64) * factor
        out = run_on(subject, calculus.value, with_inputs(given, value=value))
        what = f"out of 2^{power} v"
        found.append(compare(what, np.asarray(out, np.float64) / factor, base, given, EXACT))
    return worst(found)


CHECKS = (
    Check(
        peaked_scores, "|out - out*| ≤ 2 |dense - out*| + 4 u |out*|", "rounded_scores", quick=False
    ),
    Check(extreme_scores, "scores of ±1800 are as good as any", "exp_without_maximum"),
    Check(scaled_values, "f(q, k, 2ⁿ v) = 2ⁿ f(q, k, v)", "value_clipped"),
)
