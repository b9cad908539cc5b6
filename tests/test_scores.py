"""`attention_scores`: Ω = Q Kᵀ / √H."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.scores import soft_cap
from tests import jaxprs
from tests.tolerances import assert_close


def pair(*batch, queries=5, keys=7, size=4, dtype="float64"):
    rng = np.random.default_rng(0)
    shapes = (*batch, queries, size), (*batch, keys, size)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_scores_are_scaled_products(batch, scale):
    query, key = pair(*batch)
    want = np.einsum("...th,...sh->...ts", query, key) * (0.5 if scale is None else scale)
    assert_close(jaxattn.attention_scores(query, key, scale), want)


def test_scale_may_be_an_array_and_has_a_gradient():
    query, key = pair(3)
    scale = jnp.array([0.5, 1.0, 2.0])[:, None, None]
    scores, gradient = jax.value_and_grad(
        lambda scale: jnp.sum(jaxattn.attention_scores(query, key, scale))
    )(scale)
    product = np.einsum("bth,bsh->b", query, key)
    assert_close(gradient[:, 0, 0], product)
    assert_close(scores, product @ scale[:, 0, 0])


def test_no_features_give_scores_of_zero():
    assert (jaxattn.attention_scores(*pair(size=0)) == 0).all()


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        ("float64", "float64"),
        ("float32", "float32"),
        ("bfloat16", "float32"),
        ("float16", "float32"),
    ],
)
def test_scores_are_wide(dtype, wide):
    query, key = pair(dtype=dtype)
    scores = jaxattn.attention_scores(query, key)
    assert scores.dtype == wide
    assert_close(scores, np.float64(query) @ np.float64(key).T / 2)


def test_one_product_and_one_transpose():
    jaxpr = jax.make_jaxpr(jaxattn.attention_scores)(*pair(2))
    assert jaxprs.count(jaxpr, "dot_general") == jaxprs.count(jaxpr, "transpose") == 1


def test_soft_cap_bounds_and_is_smooth_at_zero():
    scores = jnp.array([[-1e6, -1.0, 0.0, 1.0, 1e6]])
    assert_close(soft_cap(scores, 3.0), 3 * np.tanh(np.asarray(scores) / 3))
    assert jax.grad(lambda s: soft_cap(s, 3.0).sum())(jnp.zeros((1, 1))) == 1
