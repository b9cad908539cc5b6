"""Dropout is counted, not drawn: a documented hash of key, batch index, head and positions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.dropout import dropout_from_key, random_bits
from tests import calls, oracle
from tests.tolerances import assert_close

SHAPE = (2, 4, 5, 7)
KEY = jax.random.key


def words(key):
    return np.asarray(jax.random.bits(key, (2,), jnp.uint32))


def keeps(rate, batch=(), heads=1, queries=512, keys=512, seed=0, start=0):
    """Which weights `[*B, N, T, S]` the library keeps, without the attention around it."""
    dropout = dropout_from_key(KEY(seed), rate, batch)
    rows = (jnp.arange(queries) + start).reshape((1,) * (len(batch) + 1) + (-1, 1))
    columns = (jnp.arange(keys) + start).reshape((1,) * (len(batch) + 2) + (-1,))
    return np.asarray(dropout(jnp.arange(heads)[:, None, None], rows, columns))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_out_is_the_documented_hash(implementation, rate):
    operands = calls.heads()
    kept = oracle.kept(words(KEY(3)), rate, SHAPE)
    told = {"kept": kept, "dropout_rate": rate}
    calls.check(implementation, operands, {"dropout_rate": rate, "dropout_key": KEY(3)}, told)
    assert 0.2 < abs(kept.mean() / (1 - rate)) < 2


def test_weights_are_those_that_were_used():
    operands, options = calls.heads(), {"dropout_rate": 0.4, "dropout_key": KEY(3)}
    _, weights = calls.attention_with_weights(**operands, **options)
    told = {"kept": oracle.kept(words(KEY(3)), 0.4, SHAPE), "dropout_rate": 0.4}
    assert_close(weights, oracle.attention(**operands, **told).weights)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.99])
def test_the_rate_is_honoured(rate):
    """A quarter of a million weights: within 4 standard errors of the rate, in rows and columns."""
    dropped = ~keeps(rate)
    error = np.sqrt(rate * (1 - rate) / dropped.size)
    assert abs(dropped.mean() - rate) < 4 * error
    for axis in (-1, -2):
        means = dropped.mean(axis=axis).ravel()
        assert abs(means - rate).max() < 6 * np.sqrt(rate * (1 - rate) / 512)
        assert means.std() == pytest.approx(np.sqrt(rate * (1 - rate) / 512), rel=0.2)


@functools.cache
def patterns():
    whole = keeps(0.5, batch=(3,), heads=4, queries=64, keys=64)
    return {
        "heads": whole[0],
        "batch": whole[:, 0],
        "keys of jax.random": np.stack([keeps(0.5, queries=64, keys=64, seed=s) for s in range(4)]),
        "queries": whole[0, 0],
        "keys": whole[0, 0].T,
    }


@pytest.mark.parametrize("along", ["heads", "batch", "keys of jax.random", "queries", "keys"])
def test_patterns_are_independent(along):
    """Correlations of any two patterns are those of independent coins."""
    rows = patterns()[along].reshape(len(patterns()[along]), -1) * 2.0 - 1
    correlation = rows @ rows.T / rows.shape[1]
    off = correlation[~np.eye(len(rows), dtype=bool)]
    assert abs(off).max() < 6 / np.sqrt(rows.shape[1])


def test_positions_decide_and_order_does_not(implementation):
    operands = calls.heads()
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(5), rng.permutation(7)
    run = functools.partial(
        calls.attention, dropout_rate=0.5, dropout_key=KEY(0), implementation=implementation
    )
    places = {"query_positions": np.arange(5), "key_positions": np.arange(7)}
    moved = {"query_positions": rows, "key_positions": columns}
    query, key, value = operands.values()
    out = run(query[:, rows], key[:, columns], value[:, columns], **moved)
    assert_close(out, run(**operands, **places)[:, rows])
    other = run(**operands, **(places | {"key_positions": np.arange(7) + 1}))
    assert (np.abs(other - out) > 1e-3).any()


def test_a_key_for_each_example_is_vmap(implementation):
    operands, keys = calls.heads(batch=(3,)), jax.random.split(KEY(0), 3)
    run = functools.partial(jaxattn.attention, dropout_rate=0.5, implementation=implementation)
    together = calls.jit(lambda x, keys: run(**x, dropout_key=keys))(operands, keys)
    each = calls.jit(jax.vmap(lambda x, key: run(**x, dropout_key=key)))(operands, keys)
    assert_close(each, together)
    same = jax.tree.map(lambda x: x[:1].repeat(3, 0), operands)
    out = calls.jit(lambda x, keys: run(**x, dropout_key=keys))(same, keys)
    assert len({np.asarray(x).tobytes() for x in out}) == 3


def test_one_key_for_the_batch_counts_the_examples(implementation):
    same = {name: np.stack([x, x]) for name, x in calls.heads(batch=()).items()}
    out = calls.attention(
        **same, dropout_rate=0.5, dropout_key=KEY(0), implementation=implementation
    )
    assert (np.abs(out[0] - out[1]) > 1e-3).any()


def test_old_style_keys_are_the_same(implementation):
    run = functools.partial(
        calls.attention, **calls.heads(), dropout_rate=0.5, implementation=implementation
    )
    np.testing.assert_array_equal(run(dropout_key=KEY(7)), run(dropout_key=jax.random.PRNGKey(7)))


@pytest.mark.parametrize("place", [0, 2**15 - 2, 2**16 - 2, 2**31 - 6])
def test_no_coordinate_wraps(place):
    """Up to position 2^31 - 1 bits are the hash's, and do not repeat those near 0."""
    batch, heads = (), jnp.zeros((1, 1, 1), jnp.int32)
    rows = jnp.arange(place, place + 5, dtype=jnp.int32)[None, :, None]
    columns = jnp.arange(place, place + 5, dtype=jnp.int32)[None, None, :]
    bits = random_bits(
        jnp.asarray(words(KEY(0))), jnp.zeros(batch, jnp.uint32), heads, rows, columns
    )
    kept = oracle.kept(
        words(KEY(0)), 0.5, (1, 5, 5), np.arange(place, place + 5), np.arange(place, place + 5)
    )
    np.testing.assert_array_equal(np.asarray(bits) >= 2**31, kept)


def test_no_repetition_in_one_coordinate():
    """f is a bijection: along each coordinate 2^18 values give as many different rows of bits."""
    many = jnp.arange(2**18, dtype=jnp.uint32) * jnp.uint32(2**14)  # all over 2^32
    zero = jnp.zeros((1, 1, 1), jnp.uint32)
    along_keys = random_bits(
        jnp.asarray(words(KEY(0))), jnp.uint32(0), zero, zero, many[None, None, :]
    )
    # The last step XORs a salt that does not depend on the key position: a bijection again.
    assert np.unique(along_keys).size == many.size


def test_gain_keeps_the_mean(implementation):
    """Averaged over 400 keys the output is the one without dropout."""
    operands = calls.heads(batch=())
    keys = jax.random.split(KEY(0), 400)
    run = functools.partial(
        jaxattn.attention, **operands, dropout_rate=0.3, implementation=implementation
    )
    out = calls.jit(jax.vmap(lambda key: run(dropout_key=key)))(keys)
    error = out.std(axis=0, ddof=1) / np.sqrt(400)
    want = oracle.attention(**operands).out
    assert (np.abs(out.mean(axis=0) - want) < 5 * error).all()
