"""`sinusoidal` and `rotary`, against their formulas in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.positions import rotary, sinusoidal
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
