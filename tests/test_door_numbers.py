"""Numbers that would silently turn into others: they are refused where they are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal, Lengths, Prefix

X = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, 4, 3)), jnp.float32)
POSITIONS = np.arange(5)


def attention(**options):
    return jaxattn.attention(X, X, X, **options)


@pytest.mark.parametrize("wide", [True, False], ids=["64 bits", "32 bits"])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        (dict(mask=Lengths(key=np.int64(2**40))), "Lengths.key"),
        (dict(mask=Lengths(key=2**40)), "Lengths.key"),
        (dict(mask=Lengths(query=np.full(2, 2**32 - 1, np.uint32))), "Lengths.query"),
        (dict(mask=Causal() & Prefix(np.uint32(2**31))), "Prefix.length"),
        (dict(key_positions=np.array([0, 1, 2, 3, 2**31], np.uint32)), "key_positions"),
        (dict(query_positions=POSITIONS - 2**40), "query_positions"),
        (dict(query_positions=POSITIONS + 2**40), "query_positions"),
    ],
)
def test_integers_beyond_int32(options, name, wide):
    with jax.enable_x64(wide), pytest.raises(ValueError, match=f"{name} must lie below 2.31, .*;"):
        attention(**options)


def test_the_largest_length_is_all_keys():
    got = attention(mask=Lengths(key=np.uint32(2**31 - 1)))
    np.testing.assert_array_equal(got, attention())


@pytest.mark.parametrize("name", ["scale", "sink", "softcap"])
@pytest.mark.parametrize("kind", [np.complex64, jnp.complex64])
def test_complex_numbers(name, kind):
    with pytest.raises(TypeError, match=f"{name} must be a real number .* got complex64"):
        attention(**{name: kind(0.5 + 3j)})


@pytest.mark.parametrize("number", [0.0, -2.0, np.inf, np.nan])
@pytest.mark.parametrize(
    "make",
    [float, np.float32, jnp.float32, lambda x: jnp.array([1, 2, x, 3], jnp.float32)],
    ids=["Python", "NumPy", "JAX", "per head"],
)
def test_a_softcap_is_positive_and_finite_where_it_is_known(make, number):
    with pytest.raises(ValueError, match="softcap must be positive and finite, got"):
        attention(softcap=make(number))


def test_a_softcap_that_is_not_known():
    got = jax.jit(lambda cap: attention(softcap=cap))(jnp.float32(2))
    np.testing.assert_allclose(got, attention(softcap=2.0), atol=1e-6)


@pytest.mark.parametrize("mask", [Causal(), Causal() & Lengths(key=3), ~Causal()])
def test_a_mask_is_neither_true_nor_false(mask):
    with pytest.raises(TypeError, match="write &, . and ~ between masks instead of and, or"):
        mask and Causal()
    with pytest.raises(TypeError, match="neither true nor false"):
        assert not mask
