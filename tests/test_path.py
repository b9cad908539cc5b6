"""`self_attention` and `cross_attention`: one head, from X to C."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal, SlidingWindow
from tests import calls, oracle
from tests.tolerances import FORWARD, assert_close, error


def random(*shapes, dtype="float64"):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape) / 2, dtype) for shape in shapes]


def one_head(x, context, w_query, w_key, w_value, **options):
    """The oracle on projected tokens, with an axis for the one head."""
    wide = [np.asarray(a, np.float64) for a in (x, context, w_query, w_key, w_value)]
    x, context, w_query, w_key, w_value = wide
    operands = (a[..., None, :] for a in (x @ w_query, context @ w_key, context @ w_value))
    return oracle.attention(*operands, **options).out[..., 0, :]


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)], ids=str)
def test_self_attention(batch):
    x, *weights = random((*batch, 5, 4), (4, 3), (4, 3), (4, 2))
    assert_close(jaxattn.self_attention(x, *weights), one_head(x, x, *weights))


def test_cross_attention():
    x, context, *weights = random((2, 5, 4), (2, 7, 6), (4, 3), (6, 3), (6, 2))
    assert_close(jaxattn.cross_attention(x, context, *weights), one_head(x, context, *weights))


@pytest.mark.parametrize("dtype", FORWARD)
def test_dtype_is_kept(dtype):
    """The projections round to the dtype, so the error is a few of its units."""
    x, *weights = random((5, 4), (4, 3), (4, 3), (4, 2), dtype=dtype)
    out = jaxattn.self_attention(x, *weights)
    assert out.dtype == dtype
    assert error(out, one_head(x, x, *weights)) < 4 * FORWARD[dtype]


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (Causal(), np.tri(5, dtype=bool)),
        (SlidingWindow(1, 0), np.tri(5, dtype=bool) & ~np.tri(5, k=-2, dtype=bool)),
        (jnp.tri(5, dtype=bool), np.tri(5, dtype=bool)),
        (jnp.zeros((5, 5), bool), np.zeros((5, 5), bool)),
    ],
    ids=["causal", "window", "array", "nothing"],
)
def test_masks(mask, allowed):
    x, *weights = random((2, 5, 4), (4, 3), (4, 3), (4, 2))
    got = calls.jit(jaxattn.self_attention)(x, *weights, mask=mask)
    assert_close(got, one_head(x, x, *weights, mask=allowed))


def test_alignment_is_as_in_the_primitive():
    x, context, *weights = random((3, 4), (5, 4), (4, 3), (4, 3), (4, 2))
    with pytest.raises(ValueError, match='align="start"'):
        jaxattn.cross_attention(x, context, *weights, mask=Causal())
    want = one_head(x, context, *weights, mask=np.tri(3, 5, 2, dtype=bool))
    assert_close(jaxattn.cross_attention(x, context, *weights, mask=Causal("end")), want)


def test_it_is_the_primitive_with_one_head(implementation):
    x, *weights = random((2, 5, 4), (4, 3), (4, 3), (4, 2))
    heads = (jaxattn.project(x, w)[..., None, :] for w in weights)
    out = calls.attention(*heads, mask=Causal(), implementation=implementation)[..., 0, :]
    assert_close(jaxattn.self_attention(x, *weights, mask=Causal()), out)


def test_second_derivative_at_an_empty_row_is_finite():
    x, *weights = random((3, 2), (2, 2), (2, 2), (2, 2))
    mask = jnp.array([[True, True, False], [False] * 3, [True] * 3])
    loss = lambda x: jnp.sum(jaxattn.self_attention(x, *weights, mask=mask) ** 2)
    hessian = calls.jit(jax.hessian(loss))(x)
    assert jnp.isfinite(hessian).all() and (hessian != 0).any()
