"""Drop-ins: the signatures of others, their numbers where these agree with the contract."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import compat
from jaxattn.masks import Causal
from tests import calls, oracle
from tests.tolerances import error

nnx = pytest.importorskip("flax.nnx")
linen = pytest.importorskip("flax.linen")


def names(function):
    """Parameters with their kinds and defaults, but for types and default functions."""
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, None if callable(p.default) else p.default) for p in found]


def operands(dtype="float32", **sizes):
    return [jnp.asarray(x, dtype) for x in calls.heads(queries=6, keys=6, **sizes).values()]


theirs = calls.jit(
    jax.nn.dot_product_attention,
    static_argnames=("is_causal", "local_window_size", "implementation", "return_residual"),
)
ours = calls.jit(
    compat.dot_product_attention,
    static_argnames=("is_causal", "local_window_size", "implementation", "return_residual"),
)


def test_signatures():
    assert names(compat.dot_product_attention) == names(jax.nn.dot_product_attention)
    assert names(compat.linen_attention) == names(linen.dot_product_attention)
    assert names(compat.nnx_attention) == names(nnx.dot_product_attention)


LENGTHS = jnp.array([6, 3], jnp.int32)
OPTIONS = {
    "nothing": {},
    "scale": dict(scale=0.3),
    "causal": dict(is_causal=True),
    "window": dict(local_window_size=2),
    "two-sided window": dict(local_window_size=(3, 1), is_causal=False),
    "causal window, lengths": dict(
        local_window_size=(2, 0), is_causal=True, key_value_seq_lengths=LENGTHS
    ),
    "mask and bias": dict(
        mask=np.random.default_rng(1).random((1, 4, 6, 6)) < 0.8,
        bias=np.random.default_rng(2).standard_normal((2, 1, 6, 6)).astype(np.float32),
    ),
    "mask, causal": dict(mask=np.ones((1, 1, 1, 6), bool), is_causal=True),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_jax_nn_has_the_same_numbers(name):
    options, arrays = OPTIONS[name], operands(size=4, value_size=4)
    with jax.numpy_dtype_promotion("standard"):  # theirs mixes integers of two widths
        want = theirs(*arrays, **options)
    got = ours(*arrays, **options, implementation="xla")
    rows = np.ones((2, 6), bool)
    if "key_value_seq_lengths" in options:  # a row without keys is the mean of values in theirs
        rows = np.arange(6) <= np.asarray(LENGTHS)[:, None] + 1
    assert error(np.asarray(got)[rows], np.asarray(want)[rows]) <= 2e-6


def test_jax_nn_without_a_batch_and_with_residuals():
    query, key, value = operands(size=4, value_size=4)
    out, lse = ours(query[0], key[0], value[0], is_causal=True, return_residual=True)
    want = oracle.attention(query[0], key[0], value[0], mask=np.tri(6, dtype=bool))
    assert error(out, want.out) <= 2e-6 and error(lse, want.lse) <= 2e-6
    assert lse.dtype == jnp.float32


def test_jax_nn_query_lengths_give_zero_rows():
    out = ours(*operands(), query_seq_lengths=LENGTHS)
    assert (out[1, 3:] == 0).all() and (out[0] != 0).all()
    lengths = ours(*operands(), query_seq_lengths=np.asarray(LENGTHS, np.int64))
    np.testing.assert_array_equal(out, lengths)


def test_order_between_different_lengths_must_be_said():
    query, key, value = operands()
    for options in (dict(is_causal=True), dict(local_window_size=2)):
        with pytest.raises(ValueError, match='T = 2 queries against S = 6.*align="start"'):
            compat.dot_product_attention(query[:, :2], key, value, **options)
    with pytest.raises(ValueError, match='align="end"'):
        compat.nnx_attention(query[:, :2], key, value, is_causal=True)


def test_unknown_implementation_is_refused():
    with pytest.raises(ValueError, match="implementation must be None or one of"):
        compat.dot_product_attention(*operands(), implementation="flash")


MASK = np.random.default_rng(3).random((2, 1, 6, 6)) < 0.6
MASK[..., 0] = True  # Flax has another answer for a row of nothing


def test_linen_module():
    x = jnp.asarray(np.random.default_rng(4).standard_normal((2, 6, 8)), jnp.float32)
    options = dict(num_heads=2, dtype=jnp.float32, dropout_rate=0.1, deterministic=True)
    module = linen.MultiHeadDotProductAttention(**options, attention_fn=compat.linen_attention)
    standard = linen.MultiHeadDotProductAttention(**options)
    variables = jax.jit(standard.init)(jax.random.key(0), x)
    want = standard.apply(variables, x, mask=MASK)
    assert error(module.apply(variables, x, mask=MASK), want) <= 2e-6
    out, sown = module.apply(variables, x, mask=MASK, sow_weights=True, mutable=["intermediates"])
    (weights,) = sown["intermediates"]["attention_weights"]
    assert error(out, want) <= 2e-6
    assert (
        weights.shape == (2, 2, 6, 6)
        and (weights[~np.broadcast_to(MASK, weights.shape)] == 0).all()
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using 'Module.sow")
def test_nnx_module():
    x = jnp.asarray(np.random.default_rng(4).standard_normal((2, 6, 8)), jnp.float32)
    options = dict(decode=False, dropout_rate=0.1, deterministic=True)

    def make(attention_fn):
        layer = nnx.MultiHeadAttention(2, 8, attention_fn=attention_fn, rngs=nnx.Rngs(0), **options)
        return layer(x, mask=MASK, sow_weights=True), nnx.pop(layer, nnx.Intermediate)

    want, _ = nnx.jit(lambda: make(nnx.dot_product_attention))()
    got, sown = nnx.jit(lambda: make(compat.nnx_attention))()
    assert error(got, want) <= 2e-6
    (weights,) = sown["attention_weights"].get_value()
    assert weights.shape == (2, 2, 6, 6)


@pytest.mark.parametrize("function", [compat.linen_attention, compat.nnx_attention])
def test_dropout_is_independent_and_off_when_deterministic(function):
    """V27: not one pattern for all heads and examples, whatever broadcast_dropout says."""
    query, key, _ = operands(count=4, key_heads=4)
    value = jnp.broadcast_to(jnp.eye(6, dtype=jnp.float32)[:, None], (2, 6, 4, 6))
    options = dict(dropout_rng=jax.random.key(0), dropout_rate=0.5)
    out = np.asarray(function(query, key, value, **options)) != 0
    patterns = np.moveaxis(out, 2, 1).reshape(8, -1)
    assert all((a != b).any() for i, a in enumerate(patterns) for b in patterns[:i])
    still = function(query, key, value, **options, deterministic=True)
    np.testing.assert_array_equal(still, function(query, key, value))


def test_float_masks_name_bias():
    for function in (compat.dot_product_attention, compat.linen_attention, compat.nnx_attention):
        with pytest.raises(TypeError, match="mask must be boolean.*bias="):
            function(*operands(), mask=jnp.zeros((1, 1, 6, 6)))


@pytest.mark.slow
def test_flax_has_every_row_of_its_own():
    """V17, V3: masks broadcast from the right, and a row of nothing is 0."""
    query, key, value = (x[:, None] for x in operands())
    mask = np.ones((2, 1, 1, 6, 6), bool)
    mask[0, 0, 0, 1] = False
    out = compat.linen_attention(query, key, value, mask=mask)
    assert (out[0, 0, 1] == 0).all()
    np.testing.assert_array_equal(
        out, compat.linen_attention(query, key, value, mask=mask[:, :, 0:1])
    )
    one = compat.nnx_attention(*operands(), mask=np.ones((6, 6), bool), is_causal=True)
    assert error(one, calls.attention(*operands(), mask=Causal())) <= 2e-6


def test_functions_for_the_products_are_refused():
    with pytest.raises(ValueError, match="must be None"):
        compat.linen_attention(*operands(), qk_attn_weights_einsum=jnp.einsum)


def test_dtype_is_the_computations():
    out = compat.linen_attention(*operands(), dtype=jnp.bfloat16)
    assert out.dtype == jnp.bfloat16
