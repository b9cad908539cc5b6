"""The softmax of n independent normal scores of variance c: exact averages, by quadrature.

With M_k(t) = E[e^{ks} exp(-t e^s)], s ~ N(0, c), and Y_k = Σ_j p_j^k:

    E Y_2    = n ∫ t M_2(t) M_0(t)^{n-1} dt
    E log Z  = ∫ (e^{-t} - M_0(t)^n) dt / t
    E H      = E log Z - c (1 - E Y_2)          (H = -Σ p log p; Stein's identity for E Σ p s)

This is Derrida's random energy model (Phys. Rev. B 24, 1981) at any n and c; the asymptotic
formulas are off by 1 / ln n and of no use as a reference.
"""

from __future__ import annotations

import numpy as np

SCORES = np.linspace(-9.0, 9.0, 401)  # in standard deviations
STEP = 0.125  # of u = log t; integrands are analytic, so that the sum is exact to 1e-10


def exact_averages(n: int, variance: float) -> tuple[float, float]:
    """(E H, E Y_2) of the softmax of n independent N(0, variance) scores.

    >>> from jaxattn.verify.integrals import exact_averages
    >>> [round(number, 3) for number in exact_averages(1024, 1.0)]
    [6.433, 0.003]
    """
    if variance == 0:
        return float(np.log(n)), 1.0 / n
    density = np.exp(-(SCORES**2) / 2)
    density /= density.sum()
    scores = np.sqrt(variance) * SCORES
    # Integrands are constant for t far below e^-max(s) / n, and 0 for t far above e^-min(s).
    log_times = np.arange(-scores[-1] - np.log(n) - 20, scores[-1] + 10, STEP)
    inner = scores + log_times[:, None]  # log(t e^s)
    decay = np.exp(-np.exp(np.minimum(inner, 700.0)))
    zeroth = decay @ density
    # t² M_2 = E[(t e^s)² exp(-t e^s)], bounded, so that nothing overflows; dt = t du.
    second = (np.exp(2 * np.minimum(inner, 350.0)) * decay) @ density
    participation = n * float(np.sum(second * zeroth ** (n - 1))) * STEP
    log_sum = float(np.sum(np.exp(-np.exp(np.minimum(log_times, 700.0))) - zeroth**n)) * STEP
    return log_sum - variance * (1 - participation), participation


def averages_on(n: int, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(E H, E Y_2) at many variances, by interpolation on a grid in log c (error below 1e-4)."""
    low, high = float(variances.min()), float(variances.max())
    grid = np.geomspace(low, high, 24) if high > low else np.array([low])
    table = np.array([exact_averages(n, c) for c in grid])
    points = np.log(variances)
    entropy, participation = (np.interp(points, np.log(grid), column) for column in table.T)
    return entropy, participation
