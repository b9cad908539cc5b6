"""MultiHeadAttention with its options, against NumPy; and in steps, against all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.biases import T5Buckets
from jaxattn.masks import Causal, Dense, Lengths, Prefix, Segments, SlidingWindow
from jaxattn.nn import ALiBiBias, MultiHeadAttention, Projections, RelativeBias, RMSNorm, Scoring
from jaxattn.positions import LinearScaling, Rotary
from tests import oracle
from tests.nn.modules import normal, quick, run, shapes, shuffled
from tests.tolerances import error

ROTARY = Rotary(base=100.0, size=4, interleaved=True, scaling=LinearScaling(2.0))
EVERYTHING = Scoring(
    normalize_qk=lambda size: RMSNorm(size, param_dtype=jnp.float64),
    rotary=ROTARY,
    mask=SlidingWindow(2, 0),
    sink=True,
    softcap=3.0,
    scale=0.7,
)
ATTENTIONS = {
    "plain": lambda rngs: Scoring(),
    "everything": lambda rngs: EVERYTHING,
    "halves": lambda rngs: Scoring(rotary=Rotary()),
    "alibi": lambda rngs: Scoring(bias=ALiBiBias(4)),
    "relative": lambda rngs: Scoring(
        bias=RelativeBias(4, T5Buckets(8, 6, bidirectional=False), param_dtype="float64", rngs=rngs)
    ),
}


def layer(name="everything", **options):
    """Four heads of size 6 on width 8, two for keys, values of size 3, float64."""
    options = dict(param_dtype=jnp.float64, projections=Projections(value_size=3)) | options

    def make():
        rngs = nnx.Rngs(0)
        scoring = ATTENTIONS[name](rngs)
        return MultiHeadAttention(4, 8, 24, 5, 2, scoring=scoring, rngs=rngs, **options)

    return shuffled(make)


def turned(x, positions):
    """ROTARY in NumPy, pair by pair."""
    out = np.array(x)
    for i in range(2):
        angle = (np.asarray(positions) / 2 * 100.0 ** (-i / 2))[..., None]
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., 2 * i] = a * np.cos(angle) - b * np.sin(angle)
        out[..., 2 * i + 1] = a * np.sin(angle) + b * np.cos(angle)
    return out


def everything(module, x, allowed):
    """The layer in NumPy, from its parameters."""
    state = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    state = jax.tree.map(np.asarray, state)
    query, key, value = (
        np.einsum("btd,dnh->btnh", x, state[name]["kernel"]) + state[name]["bias"]
        for name in ("query", "key", "value")
    )
    query, key = (
        x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6) * state[f"{name}_ln"]["scale"]
        for x, name in ((query, "query"), (key, "key"))
    )
    positions = np.arange(x.shape[1])
    query, key = turned(query, positions), turned(key, positions)
    distance = positions[:, None] - positions
    allowed = allowed & (0 <= distance) & (distance <= 2)
    options = dict(mask=allowed, sink=state["sink"], softcap=3.0, scale=0.7)
    heads = oracle.attention(query, key, value, **options).out
    return np.einsum("btnh,nhd->btd", heads, state["out"]["kernel"]) + state["out"]["bias"]


def call(module, *inputs, **options):
    return run(called, module, *inputs, **options)


def called(module, *inputs, **options):
    return module(*inputs, **options)


X = normal(1, 2, 6, 8)
VALID = jnp.array([[True] * 6, [False, True, False, True, True, True]])


def test_every_option_is_its_equation():
    module = layer()
    allowed = np.random.default_rng(2).random((6, 6)) < 0.7
    want = everything(module, np.asarray(X), allowed)
    assert error(call(module, X, mask=Dense(jnp.asarray(allowed))), want) <= 1e-13
    mask = Dense(jnp.asarray(allowed))
    out, weights = run(MultiHeadAttention.with_weights, module, X, mask=mask)
    assert error(out, want) <= 1e-13 and weights.shape == (2, 4, 6, 6)
    assert (weights.sum(-1) < 1).all()  # the sink has its share


def test_parameters_of_the_options():
    got = shapes(lambda: layer())
    assert got["sink",] == ((4,), "float64") and got["value", "kernel"][0] == (8, 2, 3)
    assert got["out", "kernel"][0] == (4, 3, 5) and got["query_ln", "scale"][0] == (6,)
    partly = shapes(lambda: layer("plain", projections=Projections(use_bias=("query", "out"))))
    assert {path[0] for path in partly if path[1] == "bias"} == {"query", "out"}
    assert shapes(lambda: layer("relative"))["bias", "table"][0] == (4, 8)


def in_steps(module, x, valid, mask=None, **static):
    """The layer over chunks of these sizes, and the cache's lengths."""
    return run(steps_of, module, x, valid, mask, static=static)


def steps_of(module, x, valid, mask, sizes=(3, 1, 1, 1), wraps=False, length=6):
    cache, outs, start = module.init_cache(x.shape[0], length, wraps=wraps), [], 0
    for size in sizes:
        part = slice(start, start + size)
        out, cache = module.extend(x[:, part], cache, mask=mask, valid=valid[:, part])
        outs.append(out)
        start += size
    return jnp.concatenate(outs, axis=1), cache.length


def assert_equals_all_at_once(module, got, mask, valid=VALID):
    """Each example by itself, without its padding, through the call."""
    kept = [np.flatnonzero(valid[b]) for b in range(2)]
    masks = [mask.example(jnp.int32(b), (2,)) for b in range(2)]
    want = run(each, module, [X[b, kept[b]] for b in range(2)], masks)
    for b in range(2):
        assert error(got[b, kept[b]], want[b]) <= 1e-12


def each(module, inputs, masks):
    return [module(x, mask=mask) for x, mask in zip(inputs, masks, strict=True)]


@pytest.mark.parametrize("name", quick(ATTENTIONS, "everything", "relative"))
def test_step_by_step_is_all_at_once(name):
    module = layer(name)
    got, length = in_steps(module, X, VALID, Causal())
    np.testing.assert_array_equal(length, [6, 4])
    assert_equals_all_at_once(module, got, Causal())


@pytest.mark.slow
@pytest.mark.parametrize(
    "mask",
    [
        Causal() & Segments(jnp.array([[0, 0, 1, 1, 0, 1], [3, 4, 3, 4, 4, 4]])),
        (Causal() | Prefix(jnp.array([2, 1]))) & Lengths(key=jnp.array([4, 3])),
    ],
    ids=["segments", "prefix and lengths"],
)
def test_step_by_step_with_a_mask(mask):
    module = layer("halves")
    got, _ = in_steps(module, X, VALID, mask)
    assert_equals_all_at_once(module, got, mask)


@pytest.mark.parametrize("sizes", [pytest.param((1,) * 6, marks=pytest.mark.slow), (4, 2)])
def test_a_ring_as_long_as_the_window(sizes):
    module = layer()
    got, _ = in_steps(module, X, VALID, Causal(), sizes=sizes, wraps=True, length=3)
    assert_equals_all_at_once(module, got, Causal())


def test_a_ring_shorter_than_the_window_is_refused():
    with pytest.raises(ValueError, match=r"C = 2 tokens.*SlidingWindow\(left=1, right=0\)"):
        layer().init_cache(2, 2, wraps=True)
    with pytest.raises(ValueError, match="mask=None"):
        layer("plain").init_cache(2, 8, wraps=True)


@pytest.mark.slow
def test_context_is_projected_once():
    module, y, valid = layer("plain", in_kv_features=8), normal(2, 2, 4, 8), VALID[:, :4]
    want = call(module, X, y, mask=valid[:, None, None])

    def read(module, x, y):
        held = module.encode_context(y, valid=valid)
        parts = [module.attend(part, held) for part in jnp.split(x, 3, axis=1)]
        return jnp.concatenate(parts, axis=1)

    assert error(run(read, module, X, y), want) <= 1e-13


@pytest.mark.slow
def test_positions_move_what_is_turned():
    module = layer("halves")
    moved = call(module, X, mask=Causal(), positions=jnp.arange(6) + 1000)
    assert error(moved, call(module, X, mask=Causal())) <= 1e-9  # angles of 1000 radians
    apart = call(module, X, mask=Causal(), positions=2 * jnp.arange(6))
    assert error(apart, call(module, X, mask=Causal())) > 0.01
    both = dict(positions=jnp.arange(4, 6), key_positions=jnp.arange(6))
    last = call(module, X[:, 4:], X, mask=Causal(), **both)
    assert error(last, call(module, X, mask=Causal())[:, 4:]) <= 1e-13


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float64", marks=pytest.mark.slow)])
def test_cache_has_the_dtype_of_the_computation(dtype):
    """V23; bfloat16 in steps is what it is at once, within its rounding."""
    module = layer("halves", dtype=dtype, param_dtype=jnp.float32)
    assert module.init_cache(2, 3).key.dtype == dtype
    got, _ = in_steps(module, X, VALID | True, Causal())
    want = call(module, X, mask=Causal())
    assert got.dtype == want.dtype == dtype
    assert error(got.astype(jnp.float64), want.astype(jnp.float64)) <= 2.0**-6


def test_too_many_tokens_are_an_error_or_nan():
    """V21: where a program cannot know, no number is wrong in silence."""
    module = layer("plain")
    cache = jax.jit(lambda: module.init_cache(2, 3))()
    with pytest.raises(ValueError, match="holds C = 3 tokens"):
        nnx.eval_shape(lambda: module.extend(X, cache))
    got, _ = in_steps(module, X, VALID, Causal(), length=3)
    assert jnp.isnan(got[0, 3:]).all() and jnp.isfinite(got[0, :3]).all()
    assert jnp.isnan(got[1, 5]).all() and jnp.isfinite(got[1, :5]).all()


@pytest.mark.slow
def test_padding_has_no_say():
    module = layer()
    got, _ = in_steps(module, X, VALID, Causal())
    other, _ = in_steps(module, jnp.where(VALID[..., None], X, jnp.nan), VALID, Causal())
    for b in range(2):
        kept = np.flatnonzero(VALID[b])
        np.testing.assert_array_equal(got[b, kept], other[b, kept])


@pytest.mark.slow
def test_dropout_with_causal_and_padding():
    """V14, V15, V25: any mask and value size, and the same numbers in evaluation."""
    module, still = layer("plain", dropout_rate=0.5), layer("plain")
    mask = Causal() & Dense(jnp.broadcast_to(VALID[:, None, None], (2, 1, 6, 6)))
    module.eval()
    np.testing.assert_array_equal(call(module, X, mask=mask), call(still, X, mask=mask))
    module.train()
    assert error(call(module, X, mask=mask), call(still, X, mask=mask)) > 0.01
    stepped, plain = (in_steps(m, X, VALID, Causal())[0] for m in (module, still))
    np.testing.assert_array_equal(stepped, plain)


def test_weights_do_not_change_the_numbers():
    """V34 too: an example that is all padding has finite gradients."""
    module, mask = layer(), Lengths(key=jnp.array([0, 6]))

    def both(module, x):
        out, weights = module.with_weights(x, mask=mask)

        def loss(module):
            out, weights = module.with_weights(x, mask=mask)
            return jnp.sum(out**2) + jnp.sum(weights**2)

        return module(x, mask=mask), out, weights, jax.tree.leaves(nnx.grad(loss)(module))

    plain, out, weights, gradient = run(both, module, X)
    np.testing.assert_array_equal(plain, out)
    assert (weights[0] == 0).all() and (weights[1].sum(-1) > 0).all()
    assert all(jnp.isfinite(g).all() for g in gradient)


@pytest.mark.slow
def test_learned_bias_and_sink_get_gradients():
    for name, path in (("relative", ("bias", "table")), ("everything", ("sink",))):
        graph, state = nnx.split(layer(name))
        loss = lambda state: jnp.sum(nnx.merge(graph, state)(X, mask=Causal()) ** 2)
        gradient = dict(nnx.to_flat_state(jax.jit(jax.grad(loss))(state)))[path]
        assert (np.abs(gradient[...]) > 1e-6).sum() >= 4


@pytest.mark.parametrize(
    ("make", "error_type", "message"),
    [
        (lambda m: m(X, X[:, :3]), ValueError, "rotary needs positions for T = 6 .* S = 3"),
        (lambda m: m(X, mask=jnp.ones((6, 6), bool)), TypeError, "mask must be a Mask.*own"),
        (lambda m: m.extend(X, m.init_cache(3, 8)), ValueError, r"share \*B, got \[2\] and \[3\]"),
        (
            lambda m: m.extend(X, m.init_cache(2, 8), mask=jnp.ones((6, 8), bool)),
            TypeError,
            r"mask must be a Mask.*jaxattn.masks.Dense\(array\)",
        ),
        (lambda m: m.attend(X, m.init_cache(2, 8, dtype="float32")), TypeError, "share one dtype"),
    ],
)
def test_bad_calls(make, error_type, message):
    with pytest.raises(error_type, match=message):
        nnx.eval_shape(lambda: make(layer()))


def test_bad_options():
    with pytest.raises(ValueError, match="cannot turn 3 of a head of H = 3"):
        MultiHeadAttention(2, 6, scoring=Scoring(rotary=Rotary()), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="use_bias must be one of 'query'"):
        MultiHeadAttention(2, 6, projections=Projections(use_bias=("q",)), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="layer has one of its own"):
        nnx.eval_shape(lambda: layer("alibi")(X, bias=jnp.zeros((6, 6))))
