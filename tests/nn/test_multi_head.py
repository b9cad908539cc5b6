"""MultiHeadAttention: Flax's parameters, jaxattn's semantics."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.masks import Causal, Lengths
from jaxattn.nn import MultiHeadAttention, Projections, Scoring
from tests import jaxprs
from tests.nn.modules import call, mapped, normal, shapes, shuffled
from tests.tolerances import error

NORMALISED = Scoring(normalize_qk=True)
CONFIGURATIONS = {
    "self": ({}, {}),
    "wide": (dict(qkv_features=20, out_features=3), {}),
    "cross": (dict(in_kv_features=5), {}),
    "grouped": (dict(num_kv_heads=2), {}),
    "one key head, normalised": (dict(qkv_features=32, num_kv_heads=1), dict(normalize_qk=True)),
    "normalised": ({}, dict(normalize_qk=True)),
    "no bias": ({}, dict(use_bias=False)),
}
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def layer(**options):
    """Four heads on width 8, float64, with random biases."""
    options = {"param_dtype": jnp.float64, **options}
    return shuffled(lambda: MultiHeadAttention(4, 8, rngs=nnx.Rngs(0), **options))


def in_our_words(sizes, words):
    """Flax's options as ours."""
    projections = {name: x for name, x in words.items() if name == "use_bias"}
    scoring = {name: x for name, x in words.items() if name == "normalize_qk"}
    return dict(sizes, projections=Projections(**projections), scoring=Scoring(**scoring))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parameters_are_those_of_flax(name):
    sizes, words = CONFIGURATIONS[name]
    options = in_our_words(sizes, words)
    ours = shapes(lambda: MultiHeadAttention(4, 8, rngs=nnx.Rngs(0), **options))
    assert ours == shapes(lambda: nnx.MultiHeadAttention(4, 8, rngs=nnx.Rngs(0), **sizes, **words))


def test_at_most_twelve_arguments_begun_as_flax_does():
    ours, theirs = (
        list(inspect.signature(Module).parameters)
        for Module in (MultiHeadAttention, nnx.MultiHeadAttention)
    )
    assert len(ours) <= 12 and ours[:6] == theirs[:6]


def test_same_seed_starts_at_the_numbers_of_flax():
    ours, theirs = (
        nnx.state(Module(2, 4, num_kv_heads=1, rngs=nnx.Rngs(7)), nnx.Param)
        for Module in (MultiHeadAttention, nnx.MultiHeadAttention)
    )
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ["self", "cross", "one key head, normalised"])
def test_a_state_of_flax_gives_the_outputs_of_flax(name, dtype):
    sizes, words = CONFIGURATIONS[name]
    sizes = dict(sizes, param_dtype=dtype)
    # With a rate, Flax takes the path that really computes in float64.
    rate = dict(dropout_rate=0.1, deterministic=True, decode=False, **words)
    theirs = shuffled(lambda: nnx.MultiHeadAttention(4, 8, rngs=nnx.Rngs(0), **rate, **sizes))
    ours = layer(**in_our_words(sizes, words))
    nnx.update(ours, nnx.state(theirs, nnx.Param))
    inputs = [normal(1, 2, 6, 8, dtype=dtype)]
    if name == "cross":
        inputs += [normal(2, 2, 3, 5, dtype=dtype), normal(3, 2, 3, 5, dtype=dtype)]
    keys = inputs[-1].shape[1]
    mask = np.random.default_rng(4).random((2, 1, 6, keys)) < 0.5
    mask[..., 0] = True  # Flax has another answer for a row of nothing
    for options in ({}, {"mask": jnp.asarray(mask)}):
        got = call(ours, *inputs, **options)
        with jax.numpy_dtype_promotion("standard"):  # Flax's LayerNorm needs it for float64
            want = call(theirs, *inputs, **options)
        assert error(got, want) <= TOLERANCE[dtype]


def test_key_and_value_inputs_default_to_what_stands_before():
    module, x, y = layer(), normal(1, 2, 6, 8), normal(2, 2, 3, 8)
    np.testing.assert_array_equal(call(module, x), call(module, x, x, x))
    np.testing.assert_array_equal(call(module, x, y), call(module, x, y, y))


def test_grouped_is_repeated_key_heads():
    grouped, full = layer(num_kv_heads=2), layer()
    for name in ("query", "out"):
        nnx.update(getattr(full, name), nnx.state(getattr(grouped, name)))
    for name in ("key", "value"):
        for parameter in ("kernel", "bias"):
            few = getattr(getattr(grouped, name), parameter)[...]
            getattr(getattr(full, name), parameter)[...] = jnp.repeat(few, 2, axis=-2)
    x = normal(1, 2, 6, 8)
    assert error(call(grouped, x, mask=Causal()), call(full, x, mask=Causal())) <= 1e-14


def test_permutation_equivariance():
    module, x, order = layer(scoring=NORMALISED), normal(1, 2, 6, 8), jnp.array([3, 0, 5, 1, 2, 4])
    assert error(call(module, x[:, order]), call(module, x)[:, order]) <= 1e-14
    masked = {"mask": Causal()}
    moved = error(call(module, x[:, order], **masked), call(module, x, **masked)[:, order])
    assert moved > 0.01


def test_causal_jacobian_is_zero_above_the_diagonal():
    module, x = layer(num_kv_heads=2, scoring=NORMALISED), normal(1, 5, 8)
    graph, state = nnx.split(module)
    jacobian = jax.jacrev(lambda x: nnx.merge(graph, state)(x, mask=Causal()))
    size = np.abs(jax.jit(jacobian)(x)).max(axis=(1, 3))
    assert (size[np.triu_indices(5, 1)] == 0).all()
    assert (size[np.tril_indices(5)] > 1e-4).all()


def test_any_number_of_batch_axes():
    module, x = layer(), normal(1, 2, 3, 6, 8)
    flat = call(module, x.reshape(6, 6, 8)).reshape(x.shape)
    assert error(call(module, x), flat) <= 1e-14
    assert error(call(module, x[0, 0]), flat[0, 0]) <= 1e-14
    assert error(mapped(module, x[0]), flat[0]) <= 1e-14


def test_gradient_is_the_slope():
    module, x = layer(num_kv_heads=2, scoring=NORMALISED), normal(1, 2, 5, 8)
    graph, state = nnx.split(module)
    direction = jax.tree.map(lambda p: normal(9, *p.shape), state)

    @jax.jit
    def loss(step):
        moved = jax.tree.map(lambda p, d: p + step * d, state, direction)
        return jnp.sum(jnp.sin(nnx.merge(graph, moved)(x, mask=Causal())))

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert abs(jax.grad(loss)(0.0) - slope) <= 1e-7 * max(1, abs(slope))


@pytest.mark.parametrize("normalize_qk", [False, True])
def test_bfloat16_computes_in_it_and_keeps_parameters(normalize_qk):
    options = dict(scoring=Scoring(normalize_qk=normalize_qk), param_dtype=jnp.float32)
    module, x = layer(dtype=jnp.bfloat16, **options), normal(1, 2, 6, 8, dtype=jnp.float32)
    out = call(module, x)
    assert out.dtype == jnp.bfloat16
    parameters = jax.tree.leaves(nnx.state(module, nnx.Param))
    assert {str(p.dtype) for p in parameters} == {"float32"}
    exact = layer(**options)
    assert error(out.astype(jnp.float32), call(exact, x)) <= 0.02


def test_evaluation_has_the_same_numbers_with_and_without_a_dropout_rate():
    options, x = dict(dtype=jnp.bfloat16, param_dtype=jnp.float32), normal(1, 2, 6, 8)
    without, with_rate = layer(**options), layer(dropout_rate=0.1, **options)
    with_rate.eval()
    np.testing.assert_array_equal(call(without, x), call(with_rate, x))


def test_dropout_is_independent_over_examples_heads_and_calls():
    module = layer(dropout_rate=0.5)
    for linear in (module.query, module.key, module.value):  # every head the same
        linear.kernel[...] = jnp.broadcast_to(linear.kernel[:, :1], linear.kernel.shape)
        linear.bias[...] = jnp.broadcast_to(linear.bias[:1], linear.bias.shape)
    module.out.kernel[...] = jnp.eye(8).reshape(4, 2, 8)  # and every head seen
    module.out.bias[...] = jnp.zeros(8)
    x = jnp.broadcast_to(normal(1, 6, 8), (2, 6, 8))
    module.eval()
    still = call(module, x).reshape(2, 6, 4, 2)
    assert error(still, jnp.broadcast_to(still[:1, :, :1], still.shape)) <= 1e-14
    module.train()
    first, second = (np.asarray(call(module, x)).reshape(2, 6, 4, 2) for _ in range(2))
    assert (first != second).any(axis=(1, 3)).all()
    assert (first[0] != first[1]).any(axis=(0, 2)).all()
    assert all((first[:, :, a] != first[:, :, b]).any() for a in range(4) for b in range(a))


def test_dropout_keeps_the_mean():
    module, x = layer(dropout_rate=0.25), normal(1, 6, 8)
    module.train()
    many = jnp.broadcast_to(x, (4096, 6, 8))
    out, still = np.asarray(call(module, many)), call(nnx.view(module, deterministic=True), x)
    bound = 5 * out.std(axis=0) / np.sqrt(len(out))
    assert (np.abs(out.mean(axis=0) - still) <= bound).all()


def test_dropout_follows_the_call_then_the_module():
    module, x = layer(dropout_rate=0.5), normal(1, 2, 6, 8)
    with pytest.raises(ValueError, match=r"model.train\(\) or model.eval\(\)"):
        module(x)
    module.train()
    first, second = (call(module, x, rngs=nnx.Rngs(dropout=3)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    stream = nnx.Rngs(dropout=3).dropout
    np.testing.assert_array_equal(first, call(module, x, rngs=stream))
    still = call(nnx.view(module, deterministic=True), x)
    assert error(first, still) > 0.01
    graph, state = nnx.split(module)
    said = jax.jit(lambda x: nnx.merge(graph, state)(x, deterministic=True))(x)
    np.testing.assert_array_equal(still, said)
    with pytest.raises(TypeError, match="deterministic must be True or False .* static_argnames"):
        call(module, x, deterministic=True)


def test_masks_are_masks_or_boolean_arrays():
    module, x = layer(), normal(1, 2, 3, 4, 8)
    lengths = jnp.array([[4, 2, 1], [3, 4, 2]])
    array = jnp.asarray(np.arange(4) < np.asarray(lengths)[..., None])[:, :, None, None]
    want = call(module, x, mask=Lengths(key=lengths))
    np.testing.assert_array_equal(want, call(module, x, mask=array))
    shared = call(module, x, mask=array[:, :1])
    np.testing.assert_array_equal(shared[:, 0], want[:, 0])
    noisy = layer(dropout_rate=0.5)
    noisy.train()
    assert call(noisy, x, mask=array[:, :1]).shape == x.shape


def test_a_row_of_nothing_gives_the_bias_and_finite_gradients():
    module, x = layer(), normal(1, 2, 4, 8)
    mask = jnp.ones((4, 4), bool).at[1].set(False)
    out = call(module, x, mask=mask)
    np.testing.assert_array_equal(out[:, 1], np.broadcast_to(module.out.bias[...], (2, 8)))
    gradient = nnx.jit(nnx.grad(lambda m: jnp.sum(m(x, mask=mask) ** 2)))(module)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


def test_masked_keys_may_hold_anything():
    module, x, y = layer(), normal(1, 2, 4, 8), normal(2, 2, 3, 8)
    mask = jnp.array([True, True, False])[None, :]
    want = call(module, x, y, mask=mask)
    np.testing.assert_array_equal(call(module, x, y.at[:, 2].set(jnp.nan), mask=mask), want)


def test_bias_is_added_to_scores():
    module, x = layer(), normal(1, 2, 4, 8)
    minus_infinity = jnp.where(jnp.tri(4, dtype=bool), 0.0, -jnp.inf)
    assert error(call(module, x, bias=minus_infinity), call(module, x, mask=Causal())) <= 1e-14


def test_precision_reaches_every_product():
    module, x = layer(projections=Projections(precision=jax.lax.Precision.HIGH)), normal(1, 4, 8)
    products = jaxprs.dots(jax.make_jaxpr(module)(x))
    high = (jax.lax.Precision.HIGH, jax.lax.Precision.HIGH)
    assert [e.params["precision"] for e in products] == [high] * 6


@pytest.mark.parametrize(
    ("options", "error_type", "message"),
    [
        (dict(num_heads=3), ValueError, "qkv_features = 8 must be a multiple of num_heads = 3"),
        (dict(num_heads=0), ValueError, "num_heads must be at least 1, got 0"),
        (dict(num_heads=2.0), TypeError, "num_heads must be an integer, got 2.0"),
        (dict(num_kv_heads=3), ValueError, "num_heads = 4 must be a multiple of num_kv_heads = 3"),
        (dict(num_kv_heads=0), ValueError, "num_kv_heads must be at least 1"),
        (dict(out_features=0), ValueError, "out_features must be at least 1"),
        (dict(dropout_rate=-0.1), ValueError, "dropout_rate must be at least 0 and below 1"),
        (dict(dropout_rate=float("nan")), ValueError, "dropout_rate .* got nan"),
        (dict(dropout_rate=1.0), ValueError, "dropout_rate .* got 1.0"),
        (dict(dropout_rate="0.1"), TypeError, "dropout_rate must be a Python number"),
    ],
)
def test_bad_sizes_and_rates(options, error_type, message):
    with pytest.raises(error_type, match=message):
        MultiHeadAttention(**{"num_heads": 4, "in_features": 8, "rngs": nnx.Rngs(0), **options})


@pytest.mark.parametrize(
    ("inputs", "options", "error_type", "message"),
    [
        ([(2, 4, 7)], {}, ValueError, r"inputs_q .* D = in_features = 8, got shape \[2, 4, 7\]"),
        ([(8,)], {}, ValueError, "inputs_q must be .* with at least 2 axes"),
        ([(4, 8), (4, 8)], {}, ValueError, "inputs_k .* D = in_kv_features = 5"),
        ([(4, 8), (4, 5), (4, 8)], {}, ValueError, "inputs_v .* D = in_kv_features = 5"),
        ([(4, 8), None, (4, 5)], {}, ValueError, "inputs_v came without inputs_k"),
        ([(4, 8), (3, 5)], {"mask": Causal()}, ValueError, "align"),
        ([(4, 8), (3, 5)], {"mask": jnp.zeros((4, 3))}, TypeError, "mask must be boolean.* bias="),
        ([(4, 8), (3, 5)], {"mask": jnp.ones((4, 4), bool)}, ValueError, "mask must broadcast"),
    ],
)
def test_bad_inputs(inputs, options, error_type, message):
    module = layer(in_kv_features=5)
    arrays = [None if shape is None else jnp.ones(shape) for shape in inputs]
    with pytest.raises(error_type, match=message):
        nnx.eval_shape(lambda: module(*arrays, **options))


def test_integer_inputs_are_refused():
    with pytest.raises(TypeError, match="inputs_q must be a floating array"):
        layer()(jnp.ones((4, 8), int))
