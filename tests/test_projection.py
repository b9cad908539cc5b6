"""`project`, `split_heads`, `merge_heads`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from tests.tolerances import FORWARD, assert_close


def random(*shape, dtype="float64"):
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), dtype)


@pytest.mark.parametrize("batch", [(), (3,), (2, 0), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_project_is_a_product_and_a_sum(batch, with_bias):
    x, weight = random(*batch, 5, 4), random(4, 6)
    bias = random(6) if with_bias else None
    want = np.asarray(x) @ np.asarray(weight) + (np.asarray(bias) if with_bias else 0)
    assert_close(jaxattn.project(x, weight, bias), want)


@pytest.mark.parametrize("dtype", FORWARD)
def test_project_sums_wide_and_keeps_the_dtype(dtype):
    x, weight, bias = random(5, 64, dtype=dtype), random(64, 6, dtype=dtype), random(6, dtype=dtype)
    out = jaxattn.project(x, weight, bias)
    wide = [np.asarray(a, np.float64) for a in (x, weight, bias)]
    assert out.dtype == dtype
    assert_close(out, wide[0] @ wide[1] + wide[2])


def test_project_honours_precision():
    x, weight = random(5, 4, dtype="float32"), random(4, 6, dtype="float32")
    jaxpr = jax.make_jaxpr(lambda x, w: jaxattn.project(x, w, precision="highest"))(x, weight)
    assert "HIGHEST" in str(jaxpr)


def test_head_h_owns_its_columns():
    x = random(2, 5, 12)
    split = jaxattn.split_heads(x, 3)
    assert split.shape == (2, 3, 5, 4)
    for h in range(3):
        np.testing.assert_array_equal(split[:, h], x[..., 4 * h : 4 * h + 4])


@pytest.mark.parametrize("shape", [(5, 12), (2, 5, 12), (0, 5, 12), (2, 0, 12), (5, 0)], ids=str)
@pytest.mark.parametrize("heads", [1, 3, 12])
def test_merge_is_the_inverse_of_split(shape, heads):
    x = random(*shape)
    np.testing.assert_array_equal(jaxattn.merge_heads(jaxattn.split_heads(x, heads)), x)
