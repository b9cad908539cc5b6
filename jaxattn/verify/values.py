"""Values: what attention is, against an independent oracle and in cases with a known answer."""

from __future__ import annotations

import jax
import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, bounded, compare, worst
from .compiling import compiled
from .dense import dense_attention
from .oracle import softmax
from .problem import Problem, with_inputs, with_mask
from .subject import Subject, run, run_on
from .tolerances import EXACT, FEW, VALUE, Tolerance

DTYPE_OF_UNIT = {2.0**-53: "float64", 2.0**-24: "float32", 2.0**-11: "float32", 2.0**-8: "float32"}


def oracle(subject: Subject, given: Problem) -> Measurement:
    """|out - out*| <= 2 |dense - out*| + 4 u |out*|, out* from float64 NumPy, in the 2-norm.

    Twice the error of a dense attention of the same dtype on the same input: FlashAttention's
    criterion, which follows the conditioning of the input instead of guessing it.

    out = softmax(q kᵀ / √H) v. Kills scale_one_over_size.
    """
    expected = softmax(given.x, given.mask).out
    return against_dense("out", run_on(subject, calculus.value, given), expected, given)


def against_dense(what: str, got: np.ndarray, expected: np.ndarray, given: Problem) -> Measurement:
    """The 2-norm of an error in units of the same-dtype dense error; the place is the worst one."""
    with jax.enable_x64(given.unit == 2.0**-53):
        wide = DTYPE_OF_UNIT[given.unit]
        x = [array.astype(np.dtype(wide)) for array in given.x]
        dense = np.asarray(compiled(dense_attention)(*x, given.mask))
    size = np.linalg.norm(expected)
    dense_error = np.linalg.norm(dense - expected) / size if size else 0.0
    limit = float(2 * dense_error) + 4 * given.unit
    reason = "twice the error of a dense attention of this dtype, plus 4 u"
    place = compare(what, got, expected, given, Tolerance(0.0, reason))
    error = np.linalg.norm(np.asarray(got, np.float64) - expected) / (size or 1.0)
    error = float(error) if np.isfinite(error) else np.inf
    return Measurement(what, error, limit, reason, place.expected, place.got, place.where)


def lse_definition(subject: Subject, given: Problem) -> Measurement:
    """lse_i = log sum_j exp(s_ij), the natural logarithm, beside the same out as without it.

    Sees every error of scale, which all gradients and value symmetries miss. 900 u: two ways to the
    same sum.

    lse_i = log Σ_j exp(s_ij). Kills lse_in_base_two.
    """
    out, lse = run(subject, calculus.value, given.x, mask=given.mask, lse=True)
    expected = softmax(given.x, given.mask)
    narrow = np.dtype(lse.dtype).itemsize < 4
    return worst(
        (
            compare("lse", lse, expected.lse, given, VALUE),
            compare("out beside lse", out, run_on(subject, calculus.value, given), given, VALUE),
            bounded("bytes of lse", narrow, 0, "lse is float32 or wider", lse.dtype.itemsize, 4),
        )
    )


def constant_value(subject: Subject, given: Problem) -> Measurement:
    """If every value is 1, out is 1: the weights of a row sum to one. Within 32 u.

    v = 1 gives out = 1. Kills mask_after_softmax.
    """
    ones = with_inputs(given, value=np.ones_like(given.value))
    return compare("out of v = 1", run_on(subject, calculus.value, ones), 1.0, given, FEW)


def convex_hull(subject: Subject, given: Problem) -> Measurement:
    """min_j v_j <= out_i <= max_j v_j over the keys that i may attend to: weights are >= 0.

    32 u of max |v|: a short sum of weights.

    min_j v_j ≤ out_i ≤ max_j v_j. Kills negative_weights.
    """
    out = np.asarray(run_on(subject, calculus.value, given), np.float64)
    value = np.moveaxis(np.asarray(given.value, np.float64), -3, 0)  # keys first
    inside = np.clip(out, *(np.stack(edges, axis=-3) for edges in _edges(value, given.mask)))
    scale = float(np.abs(value).max())
    return compare("out clipped to the hull", out, inside, given, FEW, scale)


def _edges(value: np.ndarray, mask: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [value[row].min(0) for row in mask], [value[row].max(0) for row in mask]


def linear_in_value(subject: Subject, given: Problem) -> Measurement:
    """f(q, k, 2 v + w) = 2 f(q, k, v) + f(q, k, w). 900 u: three sums of the same weights.

    2 v is exact and 2 v + w is rounded once.

    f(q, k, 2v + w) = 2 f(q, k, v) + f(q, k, w). Kills squashed_value.
    """
    first, second = given.value, given.tangent[2]
    results = [
        np.asarray(run_on(subject, calculus.value, with_inputs(given, value=value)), np.float64)
        for value in (first, second, 2 * first + second)
    ]
    return compare("f(2 v + w)", results[2], 2 * results[0] + results[1], given, VALUE)


def single_key(subject: Subject, given: Problem) -> Measurement:
    """A row that may attend to one key alone copies its value, bit for bit: exp(0) / 1 = 1.

    a single key gives out = v. Kills softmax_off_by_one.
    """
    if subject.masking == "argument":
        chosen = (5 * np.arange(given.shape.T)) % given.shape.S
        mask = np.arange(given.shape.S) == chosen[:, None]
        out = run_on(subject, calculus.value, with_mask(given, mask))
        return compare("out", out, given.value[..., chosen, :, :], given, EXACT)
    if subject.masking == "causal":
        out = run_on(subject, calculus.value, given)[..., :1, :, :]
        return compare("row 0", out, given.value[..., :1, :, :], given, EXACT)
    alone = (given.query[..., :1, :, :], given.key[..., :1, :, :], given.value[..., :1, :, :])
    out = run(subject, calculus.value, alone, mask=np.ones((1, 1), bool))
    return compare("out of a single key", out, alone[2], given, EXACT)


def uniform_scores(subject: Subject, given: Problem) -> Measurement:
    """If every query is 0, out_i is the mean of the values that i may attend to. Within 32 u.

    q = 0 gives out = mean of v. Kills stray_position_bias.
    """
    zeros = with_inputs(given, query=np.zeros_like(given.query))
    expected = softmax(zeros.x, zeros.mask).out
    return compare("out of q = 0", run_on(subject, calculus.value, zeros), expected, given, FEW)


CHECKS = (
    Check(oracle, "out = softmax(q kᵀ / √H) v", "scale_one_over_size"),
    Check(lse_definition, "lse_i = log Σ_j exp(s_ij)", "lse_in_base_two", ("lse",)),
    Check(constant_value, "v = 1 gives out = 1", "mask_after_softmax"),
    Check(convex_hull, "min_j v_j ≤ out_i ≤ max_j v_j", "negative_weights"),
    Check(linear_in_value, "f(q, k, 2v + w) = 2 f(q, k, v) + f(q, k, w)", "squashed_value"),
    Check(single_key, "a single key gives out = v", "softmax_off_by_one"),
    Check(uniform_scores, "q = 0 gives out = mean of v", "stray_position_bias"),
)
