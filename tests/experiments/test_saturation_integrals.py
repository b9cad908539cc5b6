"""The integrals, against a table, against two keys done otherwise, and against an identity."""

import math

import numpy as np
import pytest

from experiments import saturation_integrals as exact

# c: E H, E Y_2, E ‖J‖² for n = 1024, to the digits given.
TABLE = {
    0.25: (6.8066, 0.00125, 0.00125),
    1.0: (6.433, 0.00264, 0.00261),
    4.0: (5.027, 0.0285, 0.0211),
    16.0: (2.349, 0.273, 0.0841),
    64.0: (0.899, 0.602, 0.0852),
    128.0: (0.581, 0.715, 0.0705),
    256.0: (0.386, 0.798, 0.0550),
    1024.0: (0.179, 0.899, 0.0307),
}
UNITS = ((6e-4,) * 8, (6e-6, 6e-6, 6e-5, 6e-4, 6e-4, 6e-4, 6e-4, 6e-4), (6e-5,) * 8)


def test_the_table_of_1024_keys():
    for row, (c, (entropy, participation, jacobian)) in enumerate(TABLE.items()):
        assert exact.expected_entropy(c, 1024) == pytest.approx(entropy, abs=UNITS[0][row])
        measured = exact.expected_participation(c, 1024)
        assert measured == pytest.approx(participation, abs=UNITS[1][row])
        measured = exact.expected_jacobian_norm_squared(c, 1024)
        assert measured == pytest.approx(jacobian, abs=UNITS[2][row])


def two_keys(statistic, c):
    """E of a statistic of p = sigmoid(s_1 - s_2), s_1 - s_2 ~ N(0, 2c), by a fine sum."""
    z = np.linspace(-12, 12, 200001)
    density = np.exp(-(z**2) / 2)
    p = 1 / (1 + np.exp(-np.sqrt(2 * c) * z))
    return float(np.sum(density * statistic(p)) / np.sum(density))


@pytest.mark.parametrize("c", [0.01, 1.0, 40.0, 1024.0])
def test_two_keys_are_a_sigmoid(c):
    def entropy(p):
        return -sum(np.where(x > 0, x * np.log(np.maximum(x, 1e-300)), 0) for x in (p, 1 - p))

    near = dict(rel=1e-7, abs=1e-9)
    assert exact.expected_entropy(c, 2) == pytest.approx(two_keys(entropy, c), **near)
    squares = two_keys(lambda p: p**2 + (1 - p) ** 2, c)
    assert exact.expected_participation(c, 2) == pytest.approx(squares, **near)
    jacobian = two_keys(lambda p: 4 * (p * (1 - p)) ** 2, c)
    assert exact.expected_jacobian_norm_squared(c, 2) == pytest.approx(jacobian, **near)
    largest = two_keys(lambda p: np.maximum(p, 1 - p), c)
    assert exact.expected_largest_weight(c, 2) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("n", [1, 1024, 8192])
@pytest.mark.parametrize("c", [0.0, 1e-9, 0.3, 20.0, 1024.0])
def test_weights_sum_to_one_at_any_size(c, n):
    assert exact.expected_power_sum(1, c, n) == pytest.approx(1, abs=1e-12)
    assert 0 <= exact.expected_entropy(c, n) + 1e-9 <= math.log(n) + 2e-9


def test_the_partition_grows_with_half_of_what_participates_not():
    # d/dc E log Z = (1 - E Y_2) / 2: two integrals that share only the grid.
    for c in (0.5, 30.0, 500.0):
        width = 1e-3 * c
        high, low = (exact.expected_log_partition(c + sign * width, 700) for sign in (1, -1))
        slope = (1 - exact.expected_participation(c, 700)) / 2
        assert (high - low) / (2 * width) == pytest.approx(slope, rel=1e-5)


def test_the_largest_weight_lies_between_its_bounds():
    for c in (0.25, 16.0, 1024.0):
        participation = exact.expected_participation(c, 1024)
        assert participation < exact.expected_largest_weight(c, 1024) < math.sqrt(participation)


@pytest.mark.parametrize(
    ("c", "n"), [(-1.0, 4), (math.nan, 4), (math.inf, 4), (1.0, 0), (1.0, 2.5)]
)
def test_bad_sizes_are_named(c, n):
    with pytest.raises(ValueError, match=r"^[cn] must be"):
        exact.expected_entropy(c, n)
