"""`attention_weights` and `weighted_sum`, where a row may be empty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from tests import calls
from tests.tolerances import assert_close


def scores(*shape, dtype="float64"):
    return jnp.asarray(3 * np.random.default_rng(0).standard_normal(shape), dtype)


def softmax(x):
    x = np.asarray(x, np.float64)
    exponential = np.exp(x - x.max(-1, keepdims=True))
    return exponential / exponential.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7), (1, 1), (2, 3, 0, 7)], ids=str)
def test_softmax_over_keys(shape):
    assert_close(jaxattn.attention_weights(scores(*shape)), softmax(scores(*shape)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_are_wide(dtype):
    weights = jaxattn.attention_weights(scores(5, 7, dtype=dtype))
    assert weights.dtype == "float32"
    assert_close(weights, softmax(scores(5, 7, dtype=dtype)))


@pytest.mark.parametrize("way", ["mask", "scores of -inf"])
def test_masked_pairs_have_weight_zero(way):
    x, allowed = scores(5, 7), np.tri(5, 7, 1, dtype=bool)
    masked = np.where(allowed, x, -np.inf)
    got = (
        jaxattn.attention_weights(x, jnp.asarray(allowed))
        if way == "mask"
        else jaxattn.attention_weights(jnp.asarray(masked))
    )
    assert_close(got, softmax(masked))
    assert (got[~allowed] == 0).all()


def test_a_mask_broadcasts():
    x, allowed = scores(2, 5, 7), jnp.arange(7)[None] < 4
    assert_close(jaxattn.attention_weights(x, allowed)[..., :4], softmax(x[..., :4]))


def test_empty_rows_are_zero_with_derivatives():
    allowed = jnp.array([[True, True], [False, False]])
    run = lambda x: jaxattn.attention_weights(x, allowed)
    jacobian, hessian = calls.jit(lambda x: (jax.jacrev(run)(x), jax.hessian(run)(x)))(scores(2, 2))
    assert (run(scores(2, 2))[1] == 0).all()
    for derivative in (jacobian, hessian):
        assert jnp.isfinite(derivative).all()
        assert (derivative[1] == 0).all() and (derivative[0] != 0).any()


def test_large_and_shifted_scores():
    x = scores(5, 7)
    assert_close(jaxattn.attention_weights(x + 1e4), softmax(np.asarray(x + 1e4)))
    assert jnp.isfinite(jaxattn.attention_weights(1e300 * x)).all()


def test_weighted_sum_is_a_product():
    weights, value = scores(2, 5, 7), scores(2, 7, 3)
    want = np.asarray(weights) @ np.asarray(value)
    assert np.abs(jaxattn.weighted_sum(weights, value) - want).max() < 1e-13


def test_weighted_sum_of_narrow_values_is_wide():
    weights, value = jaxattn.attention_weights(scores(5, 7)), scores(7, 3, dtype="bfloat16")
    out = jaxattn.weighted_sum(weights.astype("float32"), value)
    assert out.dtype == "float32"
    assert_close(out, np.float64(weights) @ np.float64(value))
