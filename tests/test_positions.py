"""`sinusoidal` and `rotary`, against their formulas in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.positions import (
    LinearScaling,
    Llama3Scaling,
    Rotary,
    YarnScaling,
    rotary,
    rotate,
    sinusoidal,
)
from tests.tolerances import assert_close, error


@pytest.mark.parametrize("width", [1, 2, 7, 16])
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_sinusoidal_is_the_formula(width, base):
    places = np.array([[0, 1, 2, 50], [7, 3, 1000, 1]])
    want = np.empty((2, 4, width))
    for d in range(width):
        angle = places / base ** (2 * (d // 2) / width)
        want[..., d] = np.cos(angle) if d % 2 else np.sin(angle)
    got = sinusoidal(jnp.asarray(places), width, base=base)
    assert got.dtype == "float32"
    assert error(got, want) < 1000 * 6e-8  # an angle of 1000 has an ulp of 6e-5


def turned(x, places, base, size, interleaved):
    """Rotary in NumPy, pair by pair."""
    out = np.array(x, np.float64)
    half = size // 2
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        angle = (places * base ** (-2 * i / size))[..., None]
        out[..., a] = x[..., a] * np.cos(angle) - x[..., b] * np.sin(angle)
        out[..., b] = x[..., a] * np.sin(angle) + x[..., b] * np.cos(angle)
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("size", [None, 8, 4, 2, 0])
@pytest.mark.parametrize("places", [np.arange(5), np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])])
def test_rotary_is_the_formula(interleaved, size, places):
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 8))
    got = rotary(jnp.asarray(x), jnp.asarray(places), size=size, interleaved=interleaved, base=50.0)
    want = turned(x, places, 50.0, 8 if size is None else size, interleaved)
    assert got.dtype == "float64"
    assert_close(got, want)


@pytest.mark.parametrize("interleaved", [False, True])
def test_products_depend_on_the_distance_only(interleaved):
    query, key = np.random.default_rng(0).standard_normal((2, 1, 1, 8))
    turn = lambda x, place: rotary(
        jnp.asarray(x)[None, 0], jnp.array([place]), interleaved=interleaved
    )
    product = lambda p, r: float(jnp.sum(turn(query, p) * turn(key, r)))
    assert product(3, 1) == pytest.approx(product(103, 101), abs=1e-12)
    assert product(3, 1) == pytest.approx(product(2, 0), abs=1e-12)
    assert abs(product(3, 1) - product(1, 3)) > 1e-3


def test_rotation_keeps_length_and_position_zero_keeps_all():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3, 8)))
    assert_close(jnp.linalg.norm(rotary(x, jnp.arange(5)), axis=-1), jnp.linalg.norm(x, axis=-1))
    np.testing.assert_array_equal(rotary(x, jnp.zeros(5, jnp.int32)), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_narrow_input_is_turned_in_float32(dtype):
    """At position 1000 an angle in bfloat16 would be off by whole radians."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3, 8)), dtype)
    places = jnp.arange(1000, 1005)
    got = rotary(x, places)
    want = turned(np.asarray(x, np.float64), np.asarray(places), 10000.0, 8, False)
    assert got.dtype == dtype
    tolerance = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(dtype, 1e-4)
    assert error(got, want) < tolerance + 1e-4


def test_what_is_not_turned_is_untouched():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3, 8)))
    np.testing.assert_array_equal(rotary(x, jnp.arange(5), size=4)[..., 4:], x[..., 4:])


def rates_of(scaling, base=10000.0, size=16):
    """The R/2 rates that `rotary` turns by, read off its output at position 1."""
    ones = jnp.ones((2, 1, size), jnp.float64)
    turned = rotary(ones, jnp.arange(2), base=base, scaling=scaling)[1, 0]
    first, second = np.split(np.asarray(turned) / getattr(scaling, "amplitude", 1.0), 2)
    return np.arctan2(second - first, second + first)  # of a pair (1, 1) turned by the rate


def test_linear_scaling_squeezes_positions():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 2, 8)))
    squeezed = rotary(x, 4 * jnp.arange(4), scaling=LinearScaling(4.0))
    assert_close(squeezed, rotary(x, jnp.arange(4)))


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones():
    rates = 500000.0 ** (-np.arange(8) / 8)
    got = rates_of(Llama3Scaling(8.0, low=1.0, high=4.0, context=8192), base=500000.0)
    kinds = set()
    for rate, scaled in zip(rates, got, strict=True):
        wave = 2 * np.pi / rate
        if wave < 8192 / 4.0:
            kind, want = "kept", rate
        elif wave > 8192 / 1.0:
            kind, want = "stretched", rate / 8
        else:
            smooth = (8192 / wave - 1.0) / (4.0 - 1.0)
            kind, want = "blended", (1 - smooth) * rate / 8 + smooth * rate
        kinds.add(kind)
        assert abs(scaled - want) <= 1e-14
    assert kinds == {"kept", "stretched", "blended"}


def test_yarn_scaling_is_a_ramp_over_pairs():
    size, base, factor, context = 16, 10000.0, 4.0, 2048
    rates = base ** (-np.arange(8) / 8)

    def pair(turns):  # the paper's: where a wave of base^(2i/R) fits `turns` times
        return size * np.log(context / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = np.floor(pair(32.0)), np.ceil(pair(1.0))
    want = []
    for i, rate in enumerate(rates):
        ramp = min(max((i - low) / (high - low), 0), 1)
        want.append(rate * (1 - ramp) + rate / factor * ramp)
    scaling = YarnScaling(factor, context)
    np.testing.assert_allclose(rates_of(scaling, size=size), want, atol=1e-14)
    assert 0 < low < high < 7
    length = jnp.linalg.norm(rotary(jnp.ones((1, 1, size)), jnp.array([3]), scaling=scaling))
    assert_close(length, np.sqrt(size) * (1 + 0.1 * np.log(factor)))


def test_options_together_are_the_function():
    x, positions = jnp.ones((5, 2, 8)), jnp.arange(5)
    options = dict(base=1e6, size=4, interleaved=True, scaling=LinearScaling(2.0))
    np.testing.assert_array_equal(Rotary(**options)(x, positions), rotary(x, positions, **options))
    assert hash(Rotary(**options)) == hash(Rotary(**options))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearScaling(0.0), "factor must be above 0, got 0.0"),
        (lambda: Llama3Scaling(8.0, low=4.0, high=1.0), "high must be above low"),
        (lambda: YarnScaling(0.5, 8), "factor must be at least 1"),
        (lambda: YarnScaling(2.0, 8, fast=1.0, slow=2.0), "fast must be above slow"),
        (lambda: rotary(jnp.ones((1, 1, 2)), jnp.array([0]), base=0.0), "base must be above 0"),
        (
            lambda: rotate(jnp.ones((3, 1, 2)), *[jnp.ones((2, 1))] * 2),
            "cos must be .*tokens before",
        ),
        (lambda: rotate(jnp.ones((3, 1, 2)), *[jnp.ones((3, 2))] * 2), "R ≤ H = 2"),
    ],
)
def test_bad_scalings_and_tables(make, message):
    with pytest.raises(ValueError, match=message):
        make()
