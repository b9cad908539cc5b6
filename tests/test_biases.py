"""ALiBi, relative positions, arrays: against their formulas, with the gradients of their arrays."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.biases import ALiBi, Dense, RelativePosition, T5Buckets, alibi_slopes
from jaxattn.masks import Causal
from tests.calls import derivative

HEADS, TOKENS = 4, 6


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def clipped(distance):
    return jnp.clip(distance, -3, 3) + 3


def alibi(slopes, query, key):
    return -slopes[:, None, None] * np.abs(query - key)


def relative(table, query, key):
    return table[:, np.clip(key - query, -3, 3) + 3]


def dense(array, query, key):
    return array[..., query, key]


BIASES = {
    "alibi": (ALiBi, alibi, random(1, HEADS)),
    "relative": (lambda table: RelativePosition(table, clipped), relative, random(1, HEADS, 7)),
    "t5": (RelativePosition, lambda x, q, k: x[:, t5(k - q)], random(1, HEADS, 32)),
    "dense": (Dense, dense, random(1, TOKENS, TOKENS)),
    "dense heads": (Dense, dense, random(1, 1, HEADS, TOKENS, TOKENS)),
    "dense batch": (Dense, dense, random(1, 2, 1, TOKENS, TOKENS)),
}
EVERY = pytest.mark.parametrize("make, formula, array", BIASES.values(), ids=BIASES)


def t5(distance, count=32, furthest=128, bidirectional=True):
    """T5's buckets, one distance at a time, with logarithms in long double."""

    def one(distance):
        n = count // 2 if bidirectional else count
        first = n if bidirectional and distance > 0 else 0
        apart = abs(distance) if bidirectional else max(-distance, 0)
        if apart < n // 2:
            return first + apart
        ratio = np.log(np.longdouble(apart) / (n // 2)) / np.log(np.longdouble(furthest) / (n // 2))
        return first + min(n - 1, n // 2 + math.floor((n - n // 2) * ratio + np.longdouble(1e-15)))

    return np.vectorize(one)(distance)


@pytest.mark.parametrize(
    "options",
    [
        (32, 128, True),
        (32, 128, False),
        (64, 500, True),
        (16, 33, False),
        (4, 9, True),
        (2, 8, False),
    ],
)
def test_t5_buckets(options):
    distance = np.arange(-700, 701)
    got = jax.jit(T5Buckets(*options))(jnp.asarray(distance, jnp.int32))
    np.testing.assert_array_equal(got, t5(distance, *options))
    assert got.min() >= 0 and got.max() == options[0] - 1 and got.dtype == jnp.int32


def test_t5_buckets_are_those_of_float32():
    """The published code takes logarithms in float32: with its defaults, the same buckets."""
    apart = np.arange(8, 2000)
    scaled = np.log(apart.astype(np.float32) / np.float32(8)) / np.float32(math.log(16))
    published = np.minimum(8 + (scaled * np.float32(8)).astype(np.int32), 15)
    np.testing.assert_array_equal(T5Buckets()(-apart), published)


def test_alibi_slopes():
    np.testing.assert_array_equal(alibi_slopes(8), 0.5 ** np.arange(1, 9))
    assert alibi_slopes(8).dtype == jnp.float32
    want = np.append(2.0 ** -np.arange(1, 9), 2.0 ** (-0.5 * np.array([1, 3, 5, 7])))
    np.testing.assert_array_equal(alibi_slopes(12), want.astype(np.float32))
    assert alibi_slopes(1).tolist() == [2.0**-8]


@EVERY
def test_bias_is_its_formula_at_any_positions(make, formula, array):
    """Rank 2 as a person calls it; with batch axes, permuted, as the primitive does."""
    bias = jax.jit(lambda array, q, k: make(array)(q, k))
    counted = np.arange(TOKENS, dtype=np.int32)
    want = formula(array, counted[:, None], counted[None, :])
    got = bias(array, counted[:, None], counted[None, :])
    assert got.ndim == max(array.ndim, 3) and got.dtype == jnp.float64
    np.testing.assert_array_equal(got, np.expand_dims(want, tuple(range(got.ndim - want.ndim))))

    rng = np.random.default_rng(0)
    q, k = (rng.permuted(np.tile(counted, (2, 1)), axis=1)[:, :4] for _ in range(2))
    got = bias(array, q[:, None, :, None], k[:, None, None, :])
    whole = np.broadcast_to(want, (2, *np.broadcast_shapes(want.shape, (1, 6, 6))[-3:]))
    for example in range(2):
        rows, columns = q[example][:, None], k[example][None, :]
        np.testing.assert_array_equal(got[example], whole[example][:, rows, columns])


@jax.jit
def reference(query, key, value, pairs):
    return jaxattn.attention(query, key, value, mask=Causal(), bias=pairs)


@EVERY
def test_attention_and_its_gradients(make, formula, array, implementation):
    """Out against the array of biases; the gradient of the array by differences, in float64."""
    query, key, value = random(0, 3, 2, TOKENS, HEADS, 3)
    cotangent = random(2, 2, TOKENS, HEADS, 3)
    direction = random(3, *array.shape)
    counted = np.arange(TOKENS)

    @jax.jit
    def loss(array):
        out = jaxattn.attention(
            query, key, value, mask=Causal(), bias=make(array), implementation=implementation
        )
        return jnp.sum(out * cotangent), out

    (_, out), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(array)
    pairs = formula(array, counted[:, None], counted[None, :])
    pairs = np.broadcast_to(pairs, (2, HEADS, TOKENS, TOKENS))
    np.testing.assert_allclose(out, reference(query, key, value, pairs), atol=1e-13)
    want = derivative(lambda step: float(loss(array + step * direction)[0]), step=2e-3)
    np.testing.assert_allclose(np.sum(gradient * direction), want, rtol=1e-9, atol=1e-9)
    assert gradient.dtype == array.dtype and np.abs(gradient).max() > 0


def test_the_table_s_gradient_counts_its_pairs():
    """Each entry gets as much as there are pairs in its bucket, in a narrow dtype as well."""
    counted = jnp.arange(300, dtype=jnp.int32)
    table = jnp.zeros((1, 7), jnp.bfloat16)

    def total(table):
        return RelativePosition(table, clipped)(counted[:, None], counted[None, :]).sum()

    (got,) = jax.grad(total)(table)
    distance = np.arange(300)[None, :] - np.arange(300)[:, None]
    want = np.bincount((np.clip(distance, -3, 3) + 3).ravel())
    np.testing.assert_array_equal(got, want.astype(jnp.bfloat16))


@EVERY
def test_heads_and_examples_are_parts_of_the_whole(make, formula, array):
    counted = np.arange(TOKENS, dtype=np.int32)
    q, k = counted[:, None], counted[None, :]
    bias = make(jnp.asarray(array))
    whole = np.broadcast_to(np.asarray(bias(q, k)), (2, HEADS, TOKENS, TOKENS))
    part = jax.jit(lambda index, first: bias.example(index, (2,)).heads(first, 2)(q, k))
    for index, first in ((0, 0), (1, 2)):
        want = whole[index, first : first + 2]
        np.testing.assert_array_equal(np.broadcast_to(part(index, first), want.shape), want)


def test_absent_and_far_positions():
    """Beyond the array pairs are out; an index outside the table is loud; ALiBi goes on."""
    q, k = jnp.array([[1], [-1]]), jnp.array([[0, 3, -1]])
    np.testing.assert_array_equal(
        Dense(jnp.ones((2, 2)))(q, k)[0], [[1, -np.inf, -np.inf], [-np.inf] * 3]
    )
    outside = RelativePosition(jnp.ones((1, 2)), lambda distance: distance)
    np.testing.assert_array_equal(outside(q, k)[0], [[np.nan, np.nan, np.nan], [1, np.nan, 1]][:2])
    assert ALiBi(jnp.ones(1))(jnp.array([[2**31 - 1]]), jnp.array([[0]])) == -(2.0**31) + 1


def test_narrow_arrays_answer_in_float32():
    slopes, q, k = jnp.ones(1, jnp.bfloat16), jnp.array([[1001]]), jnp.array([[0]])
    got = ALiBi(slopes)(q, k)
    assert got.dtype == jnp.float32 and got.item() == -1001
    assert RelativePosition(slopes[:, None], jnp.zeros_like)(q, k).dtype == jnp.float32
    assert Dense(slopes[:, None])(q * 0, k).dtype == jnp.float32


def test_a_bias_is_a_pytree_with_static_buckets():
    traces = []

    @jax.jit
    def call(bias):
        traces.append(bias)
        return bias(jnp.zeros((1, 1), int), jnp.zeros((1, 1), int))

    call(RelativePosition(jnp.ones((2, 32)), T5Buckets()))
    call(RelativePosition(jnp.zeros((2, 32)), T5Buckets(32)))
    assert len(traces) == 1
    call(RelativePosition(jnp.zeros((2, 32)), T5Buckets(16)))
    assert len(traces) == 2


def test_reading():
    assert repr(ALiBi(jnp.ones(4))) == "ALiBi(slopes=float64[4])"
    shown = "RelativePosition(table=float64[2,7], buckets=<function clipped at"
    assert repr(RelativePosition(jnp.ones((2, 7)), clipped)).startswith(shown)
    assert repr(RelativePosition(jnp.ones((2, 32)))) == "RelativePosition(table=float64[2,32])"


ERRORS = {
    "slopes": (ALiBi(jnp.ones(3)), ValueError, r"ALiBi.slopes must be \[N\] = \[4\]"),
    "slope type": (ALiBi(jnp.ones(4, int)), TypeError, "ALiBi.slopes must be a floating"),
    "table": (RelativePosition(jnp.ones((32, 4))), ValueError, "its transpose"),
    "entries": (RelativePosition(jnp.ones((4, 8))), ValueError, "R = 32"),
    "buckets": (RelativePosition(jnp.ones((4, 8)), 3), TypeError, "must be a function"),
    "rank": (Dense(jnp.ones((2, 6, 6))), ValueError, r"\[\*B, N, T, S\]"),
    "heads": (Dense(jnp.ones((2, 3, 6, 6))), ValueError, "N = 4 or 1"),
    "short": (Dense(jnp.ones((6, 5))), ValueError, "has 5 entries"),
    "boolean": (Dense(jnp.ones((6, 6), bool)), TypeError, "Dense.array must be a floating"),
}


@pytest.mark.parametrize("bias, kind, words", ERRORS.values(), ids=ERRORS)
def test_check_refuses_what_does_not_fit(bias, kind, words):
    with pytest.raises(kind, match=words):
        bias.check((2,), HEADS, TOKENS, TOKENS)


@EVERY
def test_check_accepts_what_fits(make, formula, array):
    make(jnp.asarray(array)).check((2,), HEADS, TOKENS, TOKENS)
    make(jnp.asarray(array)).check((2,), HEADS, None, None)


@pytest.mark.parametrize(
    "options, words",
    [
        ((31,), "even"),
        ((2,), "even and at least 4"),
        ((1, 9, False), "at least 2"),
        ((32, 8), "above 8"),
    ],
)
def test_bad_buckets(options, words):
    with pytest.raises(ValueError, match=words):
        T5Buckets(*options)
    with pytest.raises(ValueError, match="N ≥ 1"):
        alibi_slopes(0)
