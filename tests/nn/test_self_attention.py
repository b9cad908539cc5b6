"""One head, in both of the classic forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxattn
from jaxattn.masks import Causal
from jaxattn.nn import SelfAttention, SelfAttentionLinear, linear_from_matrices
from tests.nn.modules import call, mapped, normal, shapes, shuffled
from tests.tolerances import error


def matrices(*sizes):
    """Three matrices, float64."""
    options = dict(param_dtype=jnp.float64)
    return shuffled(lambda: SelfAttention(*sizes, rngs=nnx.Rngs(0), **options))


def linear(*sizes, **options):
    """Three Linear, float64."""
    options = dict(param_dtype=jnp.float64) | options
    return shuffled(lambda: SelfAttentionLinear(*sizes, rngs=nnx.Rngs(0), **options))


@pytest.mark.parametrize(
    ("sizes", "head_size", "value_size"), [((8,), 8, 8), ((8, 4), 4, 4), ((8, 4, 6), 4, 6)]
)
def test_parameters_and_their_shapes(sizes, head_size, value_size):
    def of(module, **options):
        return shapes(lambda: module(*sizes, rngs=nnx.Rngs(0), **options))

    wanted = {"query": (8, head_size), "key": (8, head_size), "value": (8, value_size)}
    raw = {(f"w_{name}",): (shape, "float32") for name, shape in wanted.items()}
    assert of(SelfAttention) == raw
    kernels = {(name, "kernel"): (shape, "float32") for name, shape in wanted.items()}
    assert of(SelfAttentionLinear) == kernels
    biases = {(name, "bias"): (shape[1:], "float32") for name, shape in wanted.items()}
    assert of(SelfAttentionLinear, use_bias=True) == kernels | biases


@pytest.mark.parametrize("mask", [None, Causal()], ids=repr)
def test_matrices_are_the_function(mask):
    head, x = matrices(8, 4, 6), normal(1, 2, 5, 8)
    want = jaxattn.self_attention(
        x, head.w_query[...], head.w_key[...], head.w_value[...], mask=mask
    )
    assert want.shape == (2, 5, 6)
    assert error(call(head, x, mask=mask), want) <= 1e-14


@pytest.mark.parametrize("mask", [None, Causal()], ids=repr)
def test_both_forms_are_equal(mask):
    head, x = matrices(8, 4, 6), normal(1, 2, 5, 8)
    converted, want = linear_from_matrices(head), call(head, x, mask=mask)
    assert error(call(converted, x, mask=mask), want) <= 1e-14
    converted.query.kernel[...] = normal(9, 8, 4)
    assert error(call(converted, x, mask=mask), want) > 0.01  # a copy, not a view


def test_linear_adds_its_biases():
    head, x = linear(8, 4, use_bias=True), normal(1, 5, 8)
    query, key, value = (
        np.asarray(x) @ np.asarray(p.kernel[...]) + np.asarray(p.bias[...])
        for p in (head.query, head.key, head.value)
    )
    terms = np.exp(query @ key.T / 2)
    assert error(call(head, x), terms / terms.sum(-1, keepdims=True) @ value) <= 1e-14


def test_linear_computes_in_its_dtype():
    head = linear(8, 4, use_bias=True, dtype=jnp.bfloat16, param_dtype=jnp.float32)
    x = normal(1, 5, 8)
    assert call(head, x).dtype == jnp.bfloat16
    exact = linear(8, 4, use_bias=True)
    assert error(call(head, x).astype(jnp.float64), call(exact, x)) <= 0.03


def test_permutation_equivariance():
    head, x, order = matrices(8), normal(1, 5, 8), jnp.array([3, 0, 4, 1, 2])
    assert error(call(head, x[order]), call(head, x)[order]) <= 1e-14


@pytest.mark.parametrize("make", [matrices, linear])
def test_causal_jacobian_is_zero_above_the_diagonal(make):
    graph, state = nnx.split(make(8, 4))
    jacobian = jax.jacrev(lambda x: nnx.merge(graph, state)(x, mask=Causal()))
    size = np.abs(jax.jit(jacobian)(normal(1, 5, 8))).max(axis=(1, 3))
    assert (size[np.triu_indices(5, 1)] == 0).all()
    assert (size[np.tril_indices(5)] > 1e-4).all()


def test_any_number_of_batch_axes():
    head, x = matrices(8, 4), normal(1, 2, 3, 5, 8)
    out = call(head, x)
    assert error(call(head, x[1, 2]), out[1, 2]) <= 1e-14
    assert error(mapped(head, x), out) <= 1e-14


# The functions behind have a door too, where the tests' own type check may speak first.
FLOAT_MASK = "mask must be boolean.* bias=|parameter 'mask'"


@pytest.mark.parametrize("make", [matrices, linear])
@pytest.mark.parametrize(
    ("x", "mask", "error_type", "message"),
    [
        (jnp.ones((5, 7)), None, ValueError, "D"),
        (jnp.ones((5, 8), int), None, TypeError, "x must be a floating array"),
        (jnp.ones((5, 8)), jnp.zeros((5, 5)), TypeError, FLOAT_MASK),
        (jnp.ones((5, 8)), jnp.ones((5, 4), bool), ValueError, "mask must broadcast"),
    ],
)
def test_bad_inputs(make, x, mask, error_type, message):
    head = make(8, 4)
    with pytest.raises(error_type, match=message):
        nnx.eval_shape(lambda: head(x, mask=mask))


@pytest.mark.parametrize("module", [SelfAttention, SelfAttentionLinear])
@pytest.mark.parametrize(
    ("sizes", "error_type", "message"),
    [
        ((0,), ValueError, "in_features must be at least 1, got 0"),
        ((8, -1), ValueError, "head_size must be at least 1, got -1"),
        ((8, 4, 2.5), TypeError, "value_size must be an integer, got 2.5"),
    ],
)
def test_bad_sizes(module, sizes, error_type, message):
    with pytest.raises(error_type, match=message):
        module(*sizes, rngs=nnx.Rngs(0))
