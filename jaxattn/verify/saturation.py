"""Statistics: why scores are divided by √H, measured against exact integrals.

For standard normal queries and keys a row's scores are independent normals of variance
c_i = |q_i|² / H, near 1 whatever H is. Without the division it is H, the softmax freezes, and
the entropy of a row falls from ln n - c/2 to a fraction of a nat.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, bounded, worst
from .integrals import averages_on
from .problem import Problem, other
from .subject import Subject, run_on
from .tolerances import STATISTIC

TOKENS, HEADS = 64, 64


def root_scaling(subject: Subject, given: Problem) -> Measurement:
    """Mean entropy and mean Σ p² of the weights equal the integrals at c = |q|²/H, to 4 s.e.

    64 heads of 64 keys of size 64; values are unit vectors, so that out is the weights. Rows of a
    head share keys, so the standard error is taken over heads. Other scales move the entropy by
    several nats, hundreds of standard errors. (math: Derrida 1981, Stein's identity.)

    mean entropy and Σ p² at σ = 1/√H. Kills no_scale.
    """
    drawn = other(given, batch=(1,), T=TOKENS, S=TOKENS, N=HEADS, K=HEADS, H=TOKENS, Hv=TOKENS)
    value = np.broadcast_to(np.eye(TOKENS)[:, None], drawn.value.shape).astype(given.dtype)
    mask = (
        np.tri(TOKENS, dtype=bool)
        if subject.masking == "causal"
        else np.ones((TOKENS, TOKENS), bool)
    )
    drawn = replace(drawn, value=value, mask=mask)
    weights = np.asarray(run_on(subject, calculus.value, drawn), np.float64)[0]
    query = drawn.query.astype(np.float64)[0]
    if subject.masking == "causal":  # only the last row sees all keys
        weights, query = weights[-1:], query[-1:]
    variances = (query**2).sum(-1) / TOKENS
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(weights > 0, weights * np.log(weights), 0.0).sum(-1)
    measured = (entropy, (weights**2).sum(-1))
    names = ("mean entropy", "mean Σ p²")
    return worst(
        _agree(name, found - exact, found, exact)
        for name, found, exact in zip(names, measured, averages_on(TOKENS, variances), strict=True)
    )


def _agree(name: str, difference: np.ndarray, found: np.ndarray, exact: np.ndarray) -> Measurement:
    """|mean difference| in standard errors over heads, at most 4."""
    by_head = difference.mean(0)
    error = by_head.std(ddof=1) / np.sqrt(by_head.size)
    standard = abs(by_head.mean()) / error if error > 0 else np.inf
    what = f"{name}, in standard errors"
    return bounded(what, standard, 4.0, STATISTIC.reason, found.mean(), exact.mean())


CHECKS = (
    Check(root_scaling, "mean entropy and Σ p² at σ = 1/√H", "no_scale", once=True, quick=False),
)
