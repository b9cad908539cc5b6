"""LinearAttention: the function between projections, at once and token by token."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import jaxattn
from jaxattn.feature_maps import random_features
from jaxattn.masks import Causal
from jaxattn.nn import LinearAttention
from tests.nn.modules import call, normal, shapes, shuffled
from tests.tolerances import error


def layer(**options):
    return shuffled(
        lambda: LinearAttention(4, 8, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(0), **options)
    )


def test_parameters_and_their_shapes():
    got = shapes(lambda: LinearAttention(4, 8, 2, rngs=nnx.Rngs(0), use_bias=False))
    assert {path[0]: shape for path, (shape, _) in got.items()} == {
        "query": (8, 4, 2),
        "key": (8, 2, 2),
        "value": (8, 2, 2),
        "out": (4, 2, 8),
    }


@nnx.jit
def three_ways(module, x):
    """The layer, the function between its projections, and tokens in two portions."""
    whole = module(x, mask=Causal())
    heads = module.query(x), module.key(x), module.value(x)
    by_hand = module.out(jaxattn.linear_attention(*heads, mask=Causal()))
    first, cache = module.extend(x[:, :3], module.init_cache(2))
    second, _ = module.extend(x[:, 3:], cache)
    return whole, by_hand, jnp.concatenate([first, second], axis=1)


def test_is_the_function_and_its_own_recurrence():
    whole, by_hand, portions = three_ways(layer(), normal(1, 2, 5, 8))
    assert error(whole, by_hand) <= 1e-14 and error(portions, whole) <= 1e-13


def test_cross_attention_with_random_features():
    """A map with arrays is no parameter, and takes part all the same."""
    features = random_features(jax.random.key(0), 2, 6, dtype=jnp.float64)
    module = layer()
    module.feature_map = nnx.data(features)
    out = call(module, normal(1, 2, 3, 8), normal(2, 2, 5, 8))
    assert out.shape == (2, 3, 8) and (out != call(layer(), *[normal(1, 2, 3, 8)] * 2)).any()
    assert nnx.state(module, nnx.Param).keys() == nnx.state(layer(), nnx.Param).keys()


def test_bad_input():
    with pytest.raises(ValueError, match="in_features = 7 must be a multiple of num_heads = 2"):
        LinearAttention(2, 7, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="num_heads = 4 must be a multiple of num_kv_heads = 3"):
        LinearAttention(4, 8, 3, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="inputs_k must be .* D = in_features = 8"):
        layer()(jnp.ones((3, 8)), jnp.ones((3, 7)))
