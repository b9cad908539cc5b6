"""SqueezeExcitation: channel attention for images."""

import jax.numpy as jnp
import pytest
from flax import nnx

import jaxattn
from jaxattn.nn import SqueezeExcitation
from tests.nn.modules import call, normal, shapes, shuffled
from tests.tolerances import error


def block(**options):
    options = dict(reduction=4, param_dtype=jnp.float64) | options
    return shuffled(lambda: SqueezeExcitation(8, rngs=nnx.Rngs(0), **options))


def test_parameters_and_their_shapes():
    got = shapes(lambda: SqueezeExcitation(32, rngs=nnx.Rngs(0)))
    assert {path: shape for path, (shape, _) in got.items()} == {
        ("reduce", "kernel"): (32, 2),
        ("reduce", "bias"): (2,),
        ("expand", "kernel"): (2, 32),
        ("expand", "bias"): (32,),
    }


@pytest.mark.parametrize("gate", ["sigmoid", "hard"])
def test_is_the_function_over_all_places(gate):
    options = dict(gate=jaxattn.hard_sigmoid) if gate == "hard" else {}
    module, x = block(**options), normal(1, 2, 3, 5, 8)
    weights = (p[...] for p in (module.reduce.kernel, module.expand.kernel))
    biases = (p[...] for p in (module.reduce.bias, module.expand.bias))
    want = jaxattn.channel_attention(x.reshape(2, 15, 8), *weights, *biases, **options)
    assert error(call(module, x), want.reshape(x.shape)) <= 1e-14


def test_without_biases_and_batch():
    assert call(block(use_bias=False), normal(1, 3, 5, 8)).shape == (3, 5, 8)


def test_bad_input():
    with pytest.raises(ValueError, match="features = 8 must be a multiple of reduction = 3"):
        SqueezeExcitation(8, reduction=3, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"x must be \[\*B, height, width, D\] with D = features"):
        block()(jnp.ones((3, 5, 7)))
