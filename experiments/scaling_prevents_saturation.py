"""Dividing scores by √d keeps the softmax alive; without it rows freeze, but not on average.

For q, k ~ N(0, I_d) the scores of a row are independent N(0, c) with c = σ²‖q‖²: near 1 with
σ = 1/√d, near d with σ = 1. Entropy, largest weight and the Jacobian J = diag(p) - p pᵀ of the
softmax over n = 1024 keys are held against exact integrals (`saturation_integrals.py`), at given c
and for drawn queries of d = 16 to 1024, within 3 standard errors.

With scaling nothing depends on d. Without it entropy collapses, as everybody says; but "extremely
small gradients" (Vaswani et al. 2017, footnote 4) is not what happens on average: the mean of ‖J‖²
even rises. It is a heavy tail: many rows are frozen, ever more with d, while a few keep a Jacobian
of order 1. At d = 64 the median row has a larger Jacobian than with scaling, at 1024 a smaller.

Seeds are fixed. There are 72 comparisons, many of them of the same rows: of other seeds about one
in eight would show one beyond 3 standard errors.

Command: python -m experiments scaling_prevents_saturation
Minutes: 0.7
Expected: entropy 6.43 nats at any d with scaling; 2.5, 0.93, 0.38, 0.18 without it
"""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from numpy.polynomial import Chebyshev

from experiments import saturation_figure
from experiments import saturation_integrals as exact
from experiments.report import Claim, Result
from experiments.saturation_rows import (
    FROZEN,
    KEYS,
    Rows,
    described,
    drawn_rows,
    frozen_share,
    median_norm,
    rows_at,
)

EXACT: dict[str, Callable[[float, int], float]] = {
    "entropy": exact.expected_entropy,
    "largest weight": exact.expected_largest_weight,
    "Σ p²": exact.expected_participation,
    "‖J‖²": exact.expected_jacobian_norm_squared,
    "log Z": exact.expected_log_partition,
}
SLOW = "largest weight"  # its integral takes too long for hundreds of c


def run(out: Path, quick: bool) -> Result:
    """Rows at given c, and of drawn queries with and without scaling, beside the integrals."""
    heads = 16 if quick else 64
    variances = [1.0, 16.0, 128.0] if quick else [0.25, 1.0, 4.0, 16.0, 64.0, 128.0, 256.0, 1024.0]
    sizes = [16, 64] if quick else [16, 64, 256, 1024]
    with jax.enable_x64(True):
        given = rows_at(variances, heads, size=64)
        drawn = {d: drawn_rows(d, heads) for d in sizes}
    scaled = {d: rows for d, (rows, _) in drawn.items()}
    plain = {d: rows for d, (_, rows) in drawn.items()}
    claims = [
        *(agree_at(name, given) for name in EXACT),
        *(agree_over(name, scaled, plain) for name in EXACT if name != SLOW),
        *what_scaling_does(scaled, plain),
        *([] if quick else what_is_frozen(scaled, plain)),
    ]
    return Result(
        claims=claims,
        numbers={
            "at given c": {f"c = {c:g}": described(rows) for c, rows in given.items()},
            "with scaling": {f"d = {d}": described(rows) for d, rows in scaled.items()},
            "without scaling": {f"d = {d}": described(rows) for d, rows in plain.items()},
        },
        figures=[saturation_figure.draw(out, given, scaled, plain, KEYS)],
    )


def agree_at(name: str, given: dict[float, Rows]) -> Claim:
    """The mean at each c against the integral there."""
    errors = {c: standard_errors(rows[name] - EXACT[name](c, KEYS)) for c, rows in given.items()}
    return within_three(f"mean {name} at {len(given)} values of c", errors)


def agree_over(name: str, scaled: dict[int, Rows], plain: dict[int, Rows]) -> Claim:
    """The mean of drawn queries against the integral at each one's own c."""
    errors = {}
    for kind, found in (("with", scaled), ("without", plain)):
        for d, rows in found.items():
            expected = on_variances(EXACT[name], rows["c"])
            errors[f"d = {d} {kind} scaling"] = standard_errors(rows[name] - expected)
    return within_three(f"mean {name} of drawn queries, with and without scaling", errors)


def on_variances(function: Callable[[float, int], float], c: np.ndarray) -> np.ndarray:
    """The integral at many c, by a polynomial in log c through 25 of them."""
    logs = np.log(c)
    at_nodes = np.vectorize(lambda log: function(float(np.exp(log)), KEYS))
    return Chebyshev.interpolate(at_nodes, 24, domain=[logs.min(), logs.max()])(logs)


def standard_errors(differences: np.ndarray) -> float:
    """|mean| in standard errors; rows of a head share their keys, so over means of heads."""
    means = differences.mean(axis=1)
    return float(abs(means.mean()) / (means.std(ddof=1) / np.sqrt(len(means))))


def within_three(what: str, errors: dict) -> Claim:
    """The worst of several comparisons."""
    worst = max(errors, key=lambda name: errors[name])
    return Claim(
        claim=f"{what}: furthest from the integral, in standard errors",
        expected="at most 3",
        measured=errors[worst],
        holds=errors[worst] <= 3,
    )


def what_scaling_does(scaled: dict[int, Rows], plain: dict[int, Rows]) -> list[Claim]:
    """Entropy is independent of d with scaling, and collapses without."""
    entropies = [rows["entropy"].mean() for rows in scaled.values()]
    spread = float(max(entropies) - min(entropies))
    lost = float(scaled[64]["entropy"].mean() - plain[64]["entropy"].mean())
    ratios = [plain[d]["‖J‖²"].mean() / scaled[d]["‖J‖²"].mean() for d in scaled]
    return [
        Claim(
            claim="with scaling mean entropy is the same for every d: largest difference, nats",
            expected="at most 0.02",
            measured=spread,
            holds=spread <= 0.02,
        ),
        Claim(
            claim="without scaling entropy collapses: nats lost at d = 64",
            expected="above 5",
            measured=lost,
            holds=lost > 5,
        ),
        Claim(
            claim="mean ‖J‖² does not vanish without scaling: smallest ratio to that with it",
            expected="above 1, against the folklore",
            measured=float(min(ratios)),
            holds=min(ratios) > 1,
        ),
    ]


def what_is_frozen(scaled: dict[int, Rows], plain: dict[int, Rows]) -> list[Claim]:
    """The heavy tail: the median row and the share of frozen rows."""
    ratio = {d: float(median_norm(plain[d]) / median_norm(scaled[d])) for d in (64, 1024)}
    share = [frozen_share(rows) for rows in plain.values()]
    return [
        Claim(
            claim="median ‖J‖ without scaling over that with it, at d = 64 and d = 1024",
            expected="above 1, and below 1",
            measured=list(ratio.values()),
            holds=ratio[64] > 1 > ratio[1024],
        ),
        Claim(
            claim=f"share of rows with ‖J‖ < {FROZEN:g} without scaling, at d = {list(plain)}",
            expected="growing to over a third",
            measured=share,
            holds=share == sorted(share) and share[-1] > 1 / 3,
        ),
    ]


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
