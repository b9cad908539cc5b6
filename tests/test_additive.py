"""Additive and multiplicative attention, from the two papers alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal, Lengths
from tests import oracle
from tests.calls import jit
from tests.differentiation import check_derivatives, orders
from tests.tolerances import FORWARD, assert_close, error


def arrays(*shapes, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def additive_operands(batch=(2,), queries=3, keys=5, **options):
    shapes = (*batch, queries, 4), (*batch, keys, 6), (*batch, keys, 2), (4, 7), (6, 7), (7,)
    return arrays(*shapes, **options)


def read(scores, value, allowed):
    """`softmax(scores) V`, pair by pair."""
    out = np.zeros((*scores.shape[:-1], value.shape[-1]))
    for *b, i in np.ndindex(*scores.shape[:-1]):
        used = np.flatnonzero(allowed[(*b, i)])
        weights, _ = oracle.softmax(scores[(*b, i)][used], -np.inf)
        for j, weight in zip(used, weights, strict=True):
            out[(*b, i)] += weight * value[(*b, j)]
    return out


def additive(query, key, value, w_query, w_key, vector, allowed=None):
    """Bahdanau's equations for each pair."""
    query, key, value, w_query, w_key, vector = (
        np.asarray(x, np.float64) for x in (query, key, value, w_query, w_key, vector)
    )
    *batch, queries, _ = query.shape
    scores = np.zeros((*batch, queries, key.shape[-2]))
    for *b, i, j in np.ndindex(*scores.shape):
        hidden = np.tanh(query[(*b, i)] @ w_query + key[(*b, j)] @ w_key)
        scores[(*b, i, j)] = hidden @ vector
    allowed = True if allowed is None else allowed
    return read(scores, value, np.broadcast_to(allowed, scores.shape))


def multiplicative(query, key, value, weight=None, allowed=None):
    """Luong's, likewise."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    weight = np.eye(query.shape[-1]) if weight is None else np.asarray(weight, np.float64)
    *batch, queries, _ = query.shape
    scores = np.zeros((*batch, queries, key.shape[-2]))
    for *b, i, j in np.ndindex(*scores.shape):
        scores[(*b, i, j)] = query[(*b, i)] @ weight @ key[(*b, j)]
    allowed = True if allowed is None else allowed
    return read(scores, value, np.broadcast_to(allowed, scores.shape))


@pytest.mark.parametrize("batch", [(), (2,), (2, 1)], ids=str)
def test_additive_is_the_equation(batch):
    operands = additive_operands(batch)
    assert_close(jaxattn.additive_attention(*operands), additive(*operands))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtype_is_kept(dtype):
    """Projections are rounded to the dtype, so the error is a few of its units."""
    operands = additive_operands(dtype=dtype)
    out = jaxattn.additive_attention(*operands)
    assert out.dtype == dtype and error(out, additive(*operands)) < 8 * FORWARD[dtype]
    scores = jaxattn.additive_scores(operands[0], operands[0], arrays((4,), dtype=dtype)[0])
    assert scores.dtype == jnp.float32


def test_multiplicative_with_a_matrix_and_without():
    query, key, value, weight = arrays((2, 3, 4), (2, 5, 6), (2, 5, 2), (4, 6))
    out = jaxattn.multiplicative_attention(query, key, value, weight)
    assert_close(out, multiplicative(query, key, value, weight))
    out = jaxattn.multiplicative_attention(query, query, query)
    assert_close(out, multiplicative(query, query, query))


def test_toy_attention_by_hand():
    """Embeddings alone: scores 1 and 0, weights e/(e+1) and 1/(e+1), for each of two words."""
    words = jnp.eye(2)
    large = np.e / (np.e + 1)
    want = np.array([[large, 1 - large], [1 - large, large]])
    assert_close(jaxattn.multiplicative_attention(words, words, words), want)
    identity = jnp.eye(2)
    same = jaxattn.self_attention(words, identity, identity, identity, scale=1.0)
    assert_close(same, want)


MASKS = [
    (jnp.tri(3, 5, dtype=bool), np.tri(3, 5, dtype=bool)),
    (jnp.array([[[True] * 5], [[False] * 5]]), np.array([[[True]], [[False]]])),
    (Causal("end"), np.tri(3, 5, 2, dtype=bool)),
    (Lengths(key=jnp.array([5, 2])), np.arange(5) < np.array([[[5]], [[2]]])),
    (Lengths(jnp.array([1, 3]), jnp.array([0, 4])), None),
]


@pytest.mark.parametrize(("mask", "allowed"), MASKS, ids=[str(i) for i in range(len(MASKS))])
def test_masks(mask, allowed):
    operands = additive_operands()
    if allowed is None:
        rows = np.arange(3)[:, None] < np.array([1, 3])[:, None, None]
        allowed = rows & (np.arange(5) < np.array([0, 4])[:, None, None])
    out = jaxattn.additive_attention(*operands, mask=mask)
    assert_close(out, additive(*operands, allowed))
    query, key, value = operands[0], operands[2], operands[1]
    key = jnp.concatenate([key, key], axis=-1)
    out = jaxattn.multiplicative_attention(query, key, value, mask=mask)
    assert_close(out, multiplicative(query, key, value, allowed=allowed))


@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
def test_padding_is_inert_and_empty_rows_are_zero(kind):
    """NaN in a key that nobody reads and in a query that reads nothing; to second order."""
    query, key, value, *weights = additive_operands(())
    if kind == "multiplicative":
        weights = arrays((4, 6), seed=1)
    function = getattr(jaxattn, f"{kind}_attention")
    mask = jnp.ones((3, 5), bool).at[1].set(False).at[:, 4].set(False)
    poisoned = (x.at[i].set(jnp.nan) for x, i in ((query, 1), (key, 4), (value, 4)))

    def loss(*operands):
        return jnp.sum(function(*operands, mask=mask) ** 2)

    @jit
    def second(*operands):
        everything = tuple(range(len(operands)))
        gradient = jax.grad(loss, everything)
        ones = tuple(jnp.ones_like(x) for x in operands)
        return function(*operands, mask=mask), jax.jvp(gradient, operands, ones)

    for got, want in zip(
        jax.tree.leaves(second(*poisoned, *weights)),
        jax.tree.leaves(second(query, key, value, *weights)),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)
    out, (gradients, _) = second(query, key, value, *weights)
    assert (out[1] == 0).all() and (gradients[0][1] == 0).all() and (gradients[1][4] == 0).all()
    assert (gradients[0][0] != 0).any()


def test_no_keys_give_zero():
    query, key, value, *weights = additive_operands((), keys=0)
    assert_close(jaxattn.additive_attention(query, key, value, *weights), np.zeros((3, 2)))


@orders
def test_derivatives_of_additive(reverse):
    mask = jnp.tri(3, 5, dtype=bool)
    check_derivatives(
        lambda *x: jaxattn.additive_attention(*x, mask=mask),
        *additive_operands(()),
        reverse=reverse,
    )


@orders
def test_derivatives_of_multiplicative(reverse):
    check_derivatives(
        jaxattn.multiplicative_attention, *arrays((3, 4), (5, 6), (5, 2), (4, 6)), reverse=reverse
    )


@pytest.mark.parametrize(
    ("change", "error_type", "message"),
    [
        (dict(vector=jnp.ones(6)), ValueError, r"vector must be \[A\] = \[7\], got shape \[6\]"),
        (dict(w_query=jnp.ones((5, 7))), ValueError, "D must agree: x has D = 4, weight has D = 5"),
        (dict(w_key=jnp.ones((6, 3))), ValueError, "A must agree: query has A = 7, key has A = 3"),
        (dict(value=jnp.ones((2, 4, 2))), ValueError, "S must agree: key has S = 5, value has S"),
        (dict(key=jnp.ones((1, 5, 6))), ValueError, r"must share their batch axes \*B"),
        (dict(query=jnp.ones((2, 3, 4), int)), TypeError, "query must be a floating array"),
        (dict(query=jnp.ones((2, 3, 4), "float32")), TypeError, "must share one dtype"),
        (dict(mask=jnp.ones((3, 5))), TypeError, "mask must be boolean"),
        (dict(mask=jnp.ones((3, 4), bool)), ValueError, r"mask must be \[T, S\] or"),
        (dict(mask=jnp.ones((2, 1, 3, 5), bool)), ValueError, "there are no heads here"),
        (dict(mask=Causal()), ValueError, 'align="start"'),
    ],
)
def test_bad_input(change, error_type, message):
    names = ("query", "key", "value", "w_query", "w_key", "vector")
    operands = dict(zip(names, additive_operands(), strict=True)) | change
    with pytest.raises(error_type, match=message):
        jaxattn.additive_attention(**operands)
