"""layer_norm and LayerNorm: mean 0, variance 1, in float32 or wider."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import LayerNorm, layer_norm
from tests.nn.modules import normal, shapes
from tests.tolerances import assert_close, error


def equation(x, scale, bias=0.0):
    """Equation 3 of the paper in float64 NumPy."""
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * scale + bias


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_is_the_equation_in_every_dtype(dtype):
    x, scale, bias = normal(0, 2, 3, 8, dtype=dtype), normal(1, 8), normal(2, 8)
    out = layer_norm(x, scale.astype(jnp.float32), bias.astype(jnp.float32))
    want = equation(x.astype(jnp.float64), *(np.float32(p).astype(float) for p in (scale, bias)))
    assert out.dtype == x.dtype
    assert_close(out.astype(jnp.float64), want, dtype=dtype)


def test_a_large_mean_does_not_cancel():
    x = 1000 + normal(0, 4, 8, dtype=jnp.float32)
    ours = error(layer_norm(x, jnp.ones(8, jnp.float32)), equation(x, 1.0))
    usual = error(nnx.LayerNorm(8, rngs=nnx.Rngs(0))(x), equation(x, 1.0))
    assert ours < 1e-3 < usual  # 1000 is stored to 6e-5, which the mean of 8 cannot mend


@pytest.mark.parametrize("use_bias", [False, True])
def test_parameters_are_those_of_flax(use_bias):
    ours = shapes(lambda: LayerNorm(8, use_bias=use_bias))
    assert ours == shapes(lambda: nnx.LayerNorm(8, use_bias=use_bias, rngs=nnx.Rngs(0)))


def test_module_is_the_function():
    module, x = LayerNorm(8, param_dtype=jnp.float64), normal(0, 3, 8)
    module.scale[...], module.bias[...] = normal(1, 8), normal(2, 8)
    np.testing.assert_array_equal(module(x), layer_norm(x, normal(1, 8), normal(2, 8)))


@pytest.mark.parametrize(
    ("x", "scale", "bias", "error_type", "message"),
    [
        (jnp.ones((3, 8), int), jnp.ones(8), None, TypeError, "x must be a floating array"),
        (jnp.ones((3, 8)), jnp.ones(7), None, ValueError, r"scale must be \[D\] = \[8\]"),
        (jnp.ones((3, 8)), jnp.ones(8), jnp.ones((1, 8)), ValueError, r"bias must be \[D\]"),
        (jnp.ones(()), jnp.ones(8), None, ValueError, "x must be .* with at least 1 axes"),
    ],
)
def test_bad_input(x, scale, bias, error_type, message):
    with pytest.raises(error_type, match=message):
        layer_norm(x, scale, bias)


def test_bad_width():
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        LayerNorm(0)
