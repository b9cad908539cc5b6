"""TransformerBlock: where residuals and normalisations stand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.masks import Causal
from jaxattn.nn import TransformerBlock
from tests.nn.modules import call, mapped, normal, shuffled
from tests.tolerances import error


def block(**options):
    """Width 8, two heads, float64, with random biases and scales."""
    options = dict(num_heads=2, param_dtype=jnp.float64) | options
    return shuffled(lambda: TransformerBlock(8, rngs=nnx.Rngs(0), **options))


def test_pre_norm_is_the_equation():
    module, x = block(), normal(1, 2, 5, 8)
    y = x + call(module.attention, call(module.attention_norm, x), mask=Causal())
    want = y + call(module.feed_forward, call(module.feed_forward_norm, y))
    assert error(call(module, x, mask=Causal()), want) <= 1e-13


def test_post_norm_is_the_equation():
    module, x = block(norm="post"), normal(1, 2, 5, 8)
    y = call(module.attention_norm, x + call(module.attention, x, mask=Causal()))
    want = call(module.feed_forward_norm, y + call(module.feed_forward, y))
    assert error(call(module, x, mask=Causal()), want) <= 1e-13


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_permutation_equivariance(norm):
    module, x, order = block(norm=norm), normal(1, 5, 8), jnp.array([3, 0, 4, 1, 2])
    assert error(call(module, x[order]), call(module, x)[order]) <= 1e-13


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_causal_jacobian_is_zero_above_the_diagonal(norm):
    graph, state = nnx.split(block(norm=norm, num_kv_heads=1))
    jacobian = jax.jacrev(lambda x: nnx.merge(graph, state)(x, mask=Causal()))
    size = np.abs(jax.jit(jacobian)(normal(1, 5, 8))).max(axis=(1, 3))
    assert (size[np.triu_indices(5, 1)] == 0).all()
    assert (size[np.tril_indices(5)] > 1e-5).all()


def test_any_number_of_batch_axes():
    module, x = block(), normal(1, 2, 3, 5, 8)
    out = call(module, x, mask=Causal())
    assert error(call(module, x[1, 2], mask=Causal()), out[1, 2]) <= 1e-13
    assert error(mapped(module, x, mask=Causal()), out) <= 1e-13


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("residual", [jnp.bfloat16, jnp.float32])
def test_bfloat16_products_keep_the_residual_as_it_comes(norm, residual):
    module = block(norm=norm, dtype=jnp.bfloat16, param_dtype=jnp.float32)
    x = normal(1, 5, 8)
    out = call(module, x.astype(residual))
    assert out.dtype == residual
    assert error(out.astype(jnp.float64), call(block(norm=norm), x)) <= 0.05


def test_dropout_trains_and_evaluates():
    module, x = block(dropout_rate=0.5), jnp.broadcast_to(normal(1, 5, 8), (2, 5, 8))
    with pytest.raises(ValueError, match=r"model.train\(\) or model.eval\(\)"):
        nnx.eval_shape(lambda: module(x))
    module.eval()
    np.testing.assert_array_equal(call(module, x), call(block(), x))
    module.train()
    first, second = np.asarray(call(module, x)), np.asarray(call(module, x))
    assert (first != second).any() and (first[0] != first[1]).any()


@pytest.mark.parametrize(
    ("options", "error_type", "message"),
    [
        (dict(num_heads=3), ValueError, "qkv_features = 8 must be a multiple of num_heads = 3"),
        (dict(norm="both"), ValueError, "norm must be one of 'pre', 'post', got 'both'"),
        (dict(hidden=-2), ValueError, "hidden must be at least 1"),
        (dict(dropout_rate=2), ValueError, "dropout_rate must be at least 0 and below 1"),
    ],
)
def test_bad_options(options, error_type, message):
    with pytest.raises(error_type, match=message):
        TransformerBlock(8, **{"num_heads": 2, "rngs": nnx.Rngs(0), **options})


@pytest.mark.parametrize(
    ("x", "mask", "error_type", "message"),
    [
        (jnp.ones((5, 7)), None, ValueError, "D = width = 8"),
        (jnp.ones((5, 8)), jnp.zeros((5, 5)), TypeError, "mask must be boolean"),
    ],
)
def test_bad_inputs(x, mask, error_type, message):
    module = block()
    with pytest.raises(error_type, match=message):
        nnx.eval_shape(lambda: module(x, mask=mask))
