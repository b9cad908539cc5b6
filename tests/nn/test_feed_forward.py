"""FeedForward: two layers, each token by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import FeedForward
from tests.nn.modules import call, normal, shapes, shuffled
from tests.tolerances import error


def layer(**options):
    """Width 8, float64, with random biases."""
    options = dict(param_dtype=jnp.float64) | options
    return shuffled(lambda: FeedForward(8, rngs=nnx.Rngs(0), **options))


def test_parameters_and_their_shapes():
    got = shapes(lambda: FeedForward(8, rngs=nnx.Rngs(0)))
    assert {path: shape for path, (shape, _) in got.items()} == {
        ("hidden", "kernel"): (8, 32),
        ("hidden", "bias"): (32,),
        ("out", "kernel"): (32, 8),
        ("out", "bias"): (8,),
    }
    assert shapes(lambda: FeedForward(8, 5, rngs=nnx.Rngs(0)))["out", "kernel"][0] == (5, 8)


def test_is_the_equation():
    module, x = layer(activation=jnp.tanh), normal(1, 2, 5, 8)
    first, second = (
        (np.asarray(p.kernel[...]), np.asarray(p.bias[...])) for p in (module.hidden, module.out)
    )
    want = np.tanh(np.asarray(x) @ first[0] + first[1]) @ second[0] + second[1]
    assert error(call(module, x), want) <= 1e-14


def test_each_token_by_itself():
    graph, state = nnx.split(layer())
    jacobian = jax.jit(jax.jacrev(lambda x: nnx.merge(graph, state)(x)))(normal(1, 4, 8))
    size = np.abs(jacobian).max(axis=(1, 3))
    np.testing.assert_array_equal(size != 0, np.eye(4, dtype=bool))


def test_bfloat16_computes_in_it():
    module = layer(dtype=jnp.bfloat16, param_dtype=jnp.float32)
    assert call(module, normal(1, 4, 8)).dtype == jnp.bfloat16


def test_dropout_trains_and_evaluates():
    module, x = layer(dropout_rate=0.5), normal(1, 4, 8)
    with pytest.raises(ValueError, match="deterministic"):
        module(x)
    module.eval()
    still = call(module, x)
    np.testing.assert_array_equal(still, call(layer(), x))
    module.train()
    first, second = call(module, x), call(module, x)
    assert (np.asarray(first) != second).any()
    kept = np.asarray(first) != 0
    assert 0 < kept.mean() < 1
    assert error(first, np.where(kept, 2 * still, 0)) <= 1e-14


@pytest.mark.parametrize(
    ("arguments", "error_type", "message"),
    [
        (dict(width=0), ValueError, "width must be at least 1"),
        (dict(width=8, hidden=0), ValueError, "hidden must be at least 1"),
        (dict(width=8, dropout_rate=-1), ValueError, "dropout_rate must be at least 0"),
        (dict(width=8, dropout_rate=float("nan")), ValueError, "dropout_rate .* got nan"),
        (dict(width=8, dropout_rate=None), TypeError, "dropout_rate must be a Python number"),
    ],
)
def test_bad_sizes_and_rates(arguments, error_type, message):
    with pytest.raises(error_type, match=message):
        FeedForward(**arguments, rngs=nnx.Rngs(0))


def test_bad_inputs():
    with pytest.raises(ValueError, match=r"x must be \[\*B, T, D\] with D = width = 8, got .*7"):
        layer()(jnp.ones((4, 7)))
    with pytest.raises(TypeError, match="x must be a floating array"):
        layer()(jnp.ones((4, 8), int))
