"""Exact averages over the softmax of n independent normal scores, by quadrature.

Scores s_j ~ N(0, c), weights p_j = exp(s_j) / Z, Z = Σ_j exp(s_j), power sums Y_k = Σ_j p_j^k.
Write Γ(k) Z^{-k} as ∫ t^{k-1} e^{-tZ} dt: scores are independent, so the average of a product is
a power of one-dimensional averages m_k(t) = E[(t e^s)^k exp(-t e^s)]. With t = e^u:

    E Y_k   = n / Γ(k) ∫ m_k m_0^{n-1} du
    E Y_2²  = (n ∫ m_4 m_0^{n-1} du + n(n-1) ∫ m_2² m_0^{n-2} du) / 6
    E log Z = ∫ (exp(-e^u) - m_0^n) du
    E H     = E log Z - c (1 - E Y_2)          H = -Σ p log p; Stein: E Σ p s = c (1 - E Y_2)
    E ‖J‖²  = E Y_2 - 2 E Y_3 + E Y_2²         J = diag(p) - p pᵀ, the softmax's Jacobian
    E max p = n ∫ E[t e^s exp(-t e^s) F(s)^{n-1}] du,   F(s) = E[exp(-t e^s'); s' < s]

Every integrand is analytic in a strip of half-width π/2 around the real axis and decays at both
ends, so the trapezoidal rule converges exponentially: results are good to about 1e-10 (E max p,
which cuts an integral off at s, to about 1e-6).

Sources: Derrida, Phys. Rev. B 24 (1981), the random energy model; Ghirlanda and Guerra 1998.
"""

import math
from collections.abc import Callable

import numpy as np

STEP = 0.2  # of u, and of the scores: 1e-16 for a strip of half-width π/2
NORMAL_STEP = 0.25  # at most this many standard deviations: 1e-100 for a normal density
FINE_STEP = 0.02  # the same where an integral is cut off
BLOCK = 256  # values of u at a time
REACH = 11.0  # standard deviations of a score that count: the rest has probability 4e-28
DECAY = 40.0  # e^-40 is nothing beside the results


def expected_entropy(c: float, n: int) -> float:
    """E H of n weights whose scores are independent N(0, c), in nats.

    >>> from experiments.saturation_integrals import expected_entropy
    >>> round(expected_entropy(1.0, 1024), 3)
    6.433
    """
    return expected_log_partition(c, n) - c * (1 - expected_participation(c, n))


def expected_participation(c: float, n: int) -> float:
    """E Y_2 = E Σ_j p_j², one over the number of keys that a row really attends to.

    >>> from experiments.saturation_integrals import expected_participation
    >>> round(expected_participation(64.0, 1024), 3)
    0.602
    """
    return expected_power_sum(2, c, n)


def expected_jacobian_norm_squared(c: float, n: int) -> float:
    """E ‖diag(p) - p pᵀ‖_F², the mean square of how far scores can move weights.

    >>> from experiments.saturation_integrals import expected_jacobian_norm_squared
    >>> round(expected_jacobian_norm_squared(1024.0, 1024), 4)
    0.0307
    """
    square = expected_participation_squared(c, n)
    return expected_participation(c, n) - 2 * expected_power_sum(3, c, n) + square


def expected_log_partition(c: float, n: int) -> float:
    """E log Z = E log Σ_j exp(s_j).

    >>> import math
    >>> from experiments.saturation_integrals import expected_log_partition
    >>> round(expected_log_partition(0.0, 1024) / math.log(2), 9)
    10.0
    """
    check(c, n)
    u = log_times(c, n)
    return STEP * float(np.sum(np.exp(-np.exp(u)) - survival(u, c, n)))


def expected_largest_weight(c: float, n: int) -> float:
    """E max_j p_j, the share of the one key that a row attends to most.

    >>> from experiments.saturation_integrals import expected_largest_weight
    >>> round(expected_largest_weight(16.0, 1024), 3)
    0.425
    """
    check(c, n)
    if c == 0:
        return 1 / n
    deviation = math.sqrt(c)
    step = min(FINE_STEP, STEP / deviation)
    z = np.arange(-REACH, REACH + step, step)
    density = step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    u = log_times(c, n)
    # In blocks, since this integral alone has a value for each pair of u and s.
    blocks = np.array_split(u, -(-len(u) // BLOCK))
    return n * STEP * sum(largest_in_block(block, deviation, z, density, n) for block in blocks)


def largest_in_block(
    u: np.ndarray, deviation: float, z: np.ndarray, density: np.ndarray, n: int
) -> float:
    """Σ_u E[t e^s exp(-t e^s) F(s)^{n-1}] over some of the u."""
    exponential = np.exp(below_overflow(u[:, None] + deviation * z))
    terms = density * np.exp(-exponential)
    # Trapezoids up to s, and Euler and Maclaurin's correction for the cut at s.
    slope = -(z + deviation * exponential) * terms * (z[1] - z[0])
    smaller = np.cumsum(terms, axis=1) - terms / 2 - slope / 12
    largest = terms * exponential
    counts = largest > 1e-30  # a narrow band: the power takes longest
    return float(np.sum(largest[counts] * np.clip(smaller[counts], 0, 1) ** (n - 1)))


def expected_power_sum(k: int, c: float, n: int) -> float:
    """E Y_k = E Σ_j p_j^k for k = 1, 2, ... (1 for k = 1, which checks the quadrature)."""
    check(c, n)
    u = log_times(c, n)
    return n / math.gamma(k) * STEP * float(np.sum(moment(k, u, c) * survival(u, c, n - 1)))


def expected_participation_squared(c: float, n: int) -> float:
    """E Y_2², from one key four times and two keys twice each."""
    check(c, n)
    u = log_times(c, n)
    same = n * np.sum(moment(4, u, c) * survival(u, c, n - 1))
    pairs = n * (n - 1) * np.sum(moment(2, u, c) ** 2 * survival(u, c, max(n - 2, 0)))
    return STEP * float(same + pairs) / 6


def log_times(c: float, n: int) -> np.ndarray:
    """The grid of u, from where no score counts yet to where e^{-tZ} has vanished."""
    largest = REACH * math.sqrt(c)
    return np.arange(-math.log(n) - largest - DECAY, largest + math.log(DECAY), STEP)


def moment(k: int, u: np.ndarray, c: float) -> np.ndarray:
    """m_k(u) = E[e^{k(u + s)} exp(-e^{u + s})], s ~ N(0, c)."""
    return smoothed(lambda x: np.exp(k * x - np.exp(x)), u, c)


def survival(u: np.ndarray, c: float, power: int) -> np.ndarray:
    """m_0(u)^power, from 1 - m_0, which is small where the power matters."""
    if power == 0:
        return np.ones_like(u)
    lost = smoothed(lambda x: -np.expm1(-np.exp(x)), u, c)
    with np.errstate(divide="ignore"):
        return np.exp(power * np.log1p(-np.minimum(lost, 1.0)))


def smoothed(function: Callable[[np.ndarray], np.ndarray], u: np.ndarray, c: float) -> np.ndarray:
    """E[function(u + s)], s ~ N(0, c), at every u of the grid."""
    deviation = math.sqrt(c)
    # A wide density needs no finer steps than u does: a convolution on one grid.
    shared = deviation * NORMAL_STEP >= STEP
    step = STEP / deviation if shared else NORMAL_STEP
    reach = math.ceil(REACH / step)
    z = step * np.arange(-reach, reach + 1)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    if shared:
        x = u[0] + STEP * np.arange(-reach, len(u) + reach)
        return np.convolve(function(below_overflow(x)), density, mode="valid")
    return function(below_overflow(u[:, None] + deviation * z)) @ density


def below_overflow(x: np.ndarray) -> np.ndarray:
    """x, but no more than 50: exp(-e^x) is 0 from 7 on, and e^x would overflow at 710."""
    return np.minimum(x, 50.0)


def check(c: float, n: int) -> None:
    """Raise unless c ≥ 0 is a variance and n ≥ 1 a number of keys."""
    if not (c >= 0 and math.isfinite(c)):
        raise ValueError(f"c must be a variance of scores, finite and at least 0, got {c!r}")
    if n != int(n) or n < 1:
        raise ValueError(f"n must be a number of keys, an integer of at least 1, got {n!r}")
