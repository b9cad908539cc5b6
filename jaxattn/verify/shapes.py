"""Shapes: lengths, head sizes and batch axes that are no multiples of anything, and dtypes kept."""

from __future__ import annotations

import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, bounded, compare, compare_all, worst
from .problem import Problem, at_least_float32, other
from .subject import Subject, run, run_on
from .tolerances import DERIVATIVE, VALUE
from .values import against_dense

LENGTHS = ((1, 1), (1, 7), (7, 1), (100, 129))
LONG = (300, 257)


def lengths(subject: Subject, given: Problem) -> Measurement:
    """Out equals the oracle's for T and S of 1, 7, 100 and 129, no multiples of a tile.

    Bound as for the oracle.

    T, S ∈ {1, 7, 100, 129}. Kills last_tile_dropped.
    """
    pairs = [(t, s) for t, s in LENGTHS if t == s or "cross" in subject.features]
    pairs += [] if "cross" in subject.features else [(7, 7), (129, 129)]
    return worst(
        _value(subject, other(given, batch=(1,), T=t, S=s), f"T={t}, S={s}") for t, s in pairs
    )


def long_lengths(subject: Subject, given: Problem) -> Measurement:
    """Out and gradient at 300 queries and 257 keys: several tiles, the last one ragged.

    Out as for the oracle, gradient 9e3 u: cancelling sums.

    T = 300, S = 257. Kills last_tile_dropped.
    """
    T, S = LONG if "cross" in subject.features else (LONG[1], LONG[1])
    long = other(given, batch=(1,), T=T, S=S)
    found = [_value(subject, long, f"T={T}, S={S}")]
    if "vjp" in subject.features:
        found.append(_gradient(subject, long, f"T={T}, S={S}"))
    return worst(found)


def cross_attention(subject: Subject, given: Problem) -> Measurement:
    """Fewer queries than keys, and more: out and gradient equal the oracle's.

    Out as for the oracle, gradient 9e3 u: cancelling sums.

    T ≠ S. Kills square_only.
    """
    found = []
    for T, S in ((5, 13), (13, 5)):
        crossed = other(given, T=T, S=S)
        found.append(_value(subject, crossed, f"T={T}, S={S}"))
        if "vjp" in subject.features:
            found.append(_gradient(subject, crossed, f"T={T}, S={S}"))
    return worst(found)


def value_head_size(subject: Subject, given: Problem) -> Measurement:
    """Value's head size need not be key's: out `[*B, T, N, Hv]` with Hv = 7, and its gradient.

    Out as for the oracle, gradient 9e3 u: cancelling sums.

    Hv ≠ H. Kills scale_from_value.
    """
    wide = other(given, Hv=7)
    found = [_value(subject, wide, "Hv=7")]
    if "vjp" in subject.features:
        found.append(_gradient(subject, wide, "Hv=7"))
    return worst(found)


def head_sizes(subject: Subject, given: Problem) -> Measurement:
    """Head sizes of 1 and 48, where σ = 1/√H is 1 and 0.144. Bound as for the oracle.

    H = 1 and 48. Kills scale_fixed_at_four.
    """
    return worst(_value(subject, other(given, H=H, Hv=H), f"H={H}") for H in (1, 48))


def batch_axes(subject: Subject, given: Problem) -> Measurement:
    """No batch axis at all, and two of them: leading axes are only carried along.

    Bound as for the oracle.

    batch axes () and (2, 3). Kills first_batch_axis_only.
    """
    return worst(
        _value(subject, other(given, batch=batch), f"batch {batch}") for batch in ((), (2, 3))
    )


def without_mask(subject: Subject, given: Problem) -> Measurement:
    """mask=None is the mask that is True everywhere. 900 u: other code, same sum.

    f(q, k, v, mask=None) = f with a mask of True. Kills causal_without_mask.
    """

    def bare(attend: object, x: tuple) -> object:  # type: ignore[type-arg]
        return subject.function(*x, mask=None)

    out = run_on(subject, bare, given)
    full = run(subject, calculus.value, given.x, mask=np.ones_like(given.mask))
    return compare("out of mask=None", out, full, given, VALUE)


def dtypes(subject: Subject, given: Problem) -> Measurement:
    """Out has the query's dtype, gradients have each input's, lse is float32 or wider.

    Exact: dtypes are equal or not.

    dtypes and shapes are those of the inputs. Kills always_float32.
    """
    wrong = []
    out = run_on(subject, calculus.value, given)
    if out.dtype != given.dtype:
        wrong.append(f"out is {out.dtype}, query is {given.dtype}")
    if "vjp" in subject.features:
        for name, g, x in zip(
            ("query", "key", "value"),
            run_on(subject, calculus.pull, given, given.cotangent),
            given.x,
            strict=True,
        ):
            if g.dtype != x.dtype or g.shape != x.shape:
                wrong.append(
                    f"gradient of {name} is {g.dtype}{g.shape}, {name} is {x.dtype}{x.shape}"
                )
    if "lse" in subject.features:
        lse = run(subject, calculus.value, given.x, mask=given.mask, lse=True)[1]
        if lse.dtype != at_least_float32(given.dtype):
            wrong.append(f"lse is {lse.dtype}")
    what = "; ".join(wrong) or "dtypes that differ"
    return bounded(what, len(wrong), 0, "exact: dtypes are equal or not", len(wrong), 0)


def _value(subject: Subject, given: Problem, what: str) -> Measurement:
    expected = oracle.softmax(given.x, given.mask).out
    return against_dense(f"out, {what}", run_on(subject, calculus.value, given), expected, given)


def _gradient(subject: Subject, given: Problem, what: str) -> Measurement:
    got = run_on(subject, calculus.pull, given, given.cotangent)
    at = oracle.softmax(given.x, given.mask)
    expected = oracle.adjoint(at, given.cotangent, heads=given.shape.K)
    return compare_all(f"gradient, {what}", got, expected, given, DERIVATIVE)


CHECKS = (
    Check(
        lengths,
        "T, S ∈ {1, 7, 100, 129}",
        "last_tile_dropped",
        ("lengths",),
        once=True,
        quick=False,
    ),
    Check(
        long_lengths, "T = 300, S = 257", "last_tile_dropped", ("lengths",), once=True, quick=False
    ),
    Check(cross_attention, "T ≠ S", "square_only", ("cross",), quick=False, once=True),
    Check(value_head_size, "Hv ≠ H", "scale_from_value", ("value_head_size",), once=True),
    Check(head_sizes, "H = 1 and 48", "scale_fixed_at_four", once=True, quick=False),
    Check(
        batch_axes,
        "batch axes () and (2, 3)",
        "first_batch_axis_only",
        ("batch_axes",),
        once=True,
        quick=False,
    ),
    Check(
        without_mask,
        "f(q, k, v, mask=None) = f with a mask of True",
        "causal_without_mask",
        ("mask",),
    ),
    Check(dtypes, "dtypes and shapes are those of the inputs", "always_float32", ()),
)
