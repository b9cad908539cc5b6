"""What released attentions get wrong, rows V14 to V37: ours is right, forward and in gradients."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal, Dense, Lengths
from jaxattn.positions import rotary
from tests import calls, jaxprs, oracle
from tests.defects import arrays, dropping, gradients, row
from tests.tolerances import assert_close, error


@row("V14")
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_causal_and_padding_with_dropout(row, implementation, rate):
    padding = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)[:, None, None]
    table = np.broadcast_to(padding, (2, 1, 4, 4))
    dropped = dropping(rate, (2, 4, 4, 4))
    calls.check(
        implementation,
        calls.heads(queries=4, keys=4),
        {"mask": Causal() & Dense(table)} | dropped.ours,
        {"mask": padding & np.tri(4, dtype=bool)} | dropped.oracles,
    )


@row("V15")
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_value_head_size_with_dropout(row, implementation, rate):
    dropped = dropping(rate, (2, 4, 5, 7))
    operands = calls.heads(value_size=16)
    calls.check(implementation, operands, dropped.ours, dropped.oracles)


@row("V16")
@pytest.mark.parametrize("precision", ["highest", "default"])
def test_precision_is_honoured(row, implementation, precision):
    def loss(*operands):
        return jnp.sum(
            jaxattn.attention(*operands, precision=precision, implementation=implementation)
        )

    want = getattr(jax.lax.Precision, precision.upper())
    forward = jax.make_jaxpr(loss)(*arrays("float32"))
    backward = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(*arrays("float32"))
    for jaxpr, least in ((forward, 2), (backward, 6)):
        found = [equation.params["precision"] for equation in jaxprs.dots(jaxpr)]
        assert len(found) >= least and set(found) == {(want, want)}


@row("V17")
def test_two_batch_axes_and_a_mask(row, implementation):
    allowed = np.random.default_rng(4).random((2, 1, 1, 4, 4)) < 0.7
    operands = calls.heads(batch=(2, 3), queries=4, keys=4, count=2, size=8, value_size=8)
    calls.check(implementation, operands, {"mask": allowed})


@row("V18")
def test_rotary_with_positions_of_both_shapes(row):
    x, positions = jnp.ones((2, 5, 4, 8)), jnp.arange(5)
    each = rotary(x, jnp.broadcast_to(positions, (2, 5)))
    np.testing.assert_array_equal(rotary(x, positions), each)


@row("V19")
def test_rotary_step_by_step(row, implementation):
    operands = calls.heads(queries=6, keys=6, size=4)
    positions = jnp.arange(6)

    def turned(query, key, value, rows):
        return rotary(query, rows), rotary(key, positions), value

    run = functools.partial(calls.attention, implementation=implementation)
    full = run(*turned(**operands, rows=positions), mask=Causal())
    for i in range(6):
        now = operands | {"query": operands["query"][:, i : i + 1]}
        rows = jnp.array([i])
        out = run(*turned(**now, rows=rows), mask=Causal(), query_positions=rows)
        assert_close(out[:, 0], full[:, i])


@row("V24")
def test_float_mask_names_bias(row, implementation):
    mask = jnp.where(jnp.tri(5, 7) > 0, 0, -1e9)
    with pytest.raises(TypeError, match=r"mask must be boolean.*bias="):
        jaxattn.attention(*arrays(), mask=mask, implementation=implementation)


@row("V25")
def test_dropout_changes_no_precision(row, implementation):
    operands, key = arrays("bfloat16"), jax.random.key(0)
    run = functools.partial(calls.attention, *operands, implementation=implementation)
    np.testing.assert_array_equal(run(), run(dropout_rate=0.0, dropout_key=key))
    dropped = dropping(0.1, (2, 4, 5, 7))
    assert_close(run(**dropped.ours), oracle.attention(*operands, **dropped.oracles).out)


@row("V26")
def test_long_bfloat16_softmax(row, implementation):
    operands = arrays("bfloat16", batch=(), queries=3, keys=2048, count=1, key_heads=1, size=8)
    out = calls.attention(*operands, implementation=implementation)
    assert_close(out, oracle.attention(*operands).out)


@row("V27")
def test_dropout_is_independent_for_heads_and_batch(row, implementation):
    operands = arrays(batch=(3,), queries=16, keys=16, count=4, key_heads=4, value_size=16)
    query, key, _ = operands
    value = jnp.broadcast_to(jnp.eye(16)[:, None], (3, 16, 4, 16))  # out is the weights
    dropout = {"dropout_rate": 0.5, "dropout_key": jax.random.key(0)}
    out = calls.attention(query, key, value, **dropout, implementation=implementation)
    patterns = np.reshape(np.swapaxes(out, 1, 2) != 0, (12, -1))
    for left, right in itertools.combinations(patterns, 2):
        assert 0.3 < np.mean(left == right) < 0.7


@row("V28")
def test_traced_and_learned_scale(row, implementation):
    calls.check(implementation, calls.heads() | {"scale": np.array(0.7)})


def inner(left, right):
    return sum(jnp.sum(left[name] * right[name]) for name in left)


# Each is <v, Hessian u> of a function at x.
NESTINGS = {
    "jvp of grad": lambda f: lambda x, u, v: inner(jax.jvp(jax.grad(f), (x,), (u,))[1], v),
    "grad of grad": lambda f: (
        lambda x, u, v: inner(jax.grad(lambda x: inner(jax.grad(f)(x), u))(x), v)
    ),
    "grad of jvp": lambda f: (
        lambda x, u, v: inner(jax.grad(lambda x: jax.jvp(f, (x,), (u,))[1])(x), v)
    ),
    "jvp of jvp": lambda f: (
        lambda x, u, v: jax.jvp(lambda x: jax.jvp(f, (x,), (u,))[1], (x,), (v,))[1]
    ),
}


@row("V28, V33")
@pytest.mark.parametrize("nesting", NESTINGS)
def test_second_order(row, implementation, nesting):
    operands = calls.heads(batch=(), queries=2, keys=3, count=2, key_heads=1)
    operands |= {"softcap": np.array(3.0), "sink": np.ones(2)}
    directions = calls.like(operands), calls.like(operands, seed=5)

    def loss(operands):
        return jnp.sum(jnp.sin(jaxattn.attention(**operands, implementation=implementation)))

    def moved(s, t):
        u, v = directions
        at = {name: x + s * u[name] + t * v[name] for name, x in operands.items()}
        return np.sin(oracle.attention(**at).out).sum()

    want = calls.derivative(lambda s: calls.derivative(lambda t: moved(s, t)))
    got = calls.jit(NESTINGS[nesting](loss))(operands, *directions)
    assert error(got, want) < 1e-8  # a stencil of a stencil


@row("V29")
def test_query_length_two_of_four(row, implementation):
    operands = calls.heads(queries=4, keys=4)
    mask = Lengths(query=jnp.array([2, 4]))
    out = calls.attention(**operands, mask=mask, implementation=implementation)
    assert (out[0, 2:] == 0).all() and (out[1] != 0).all()
    allowed = np.arange(4)[:, None] < np.array([2, 4])[:, None, None, None]
    calls.check(implementation, operands, {"mask": mask}, {"mask": allowed})


@row("V31")
def test_a_whole_tile_of_masked_rows(row, implementation):
    operands = arrays(batch=(), queries=200, keys=200, count=1, key_heads=1)
    allowed = np.tri(200, dtype=bool)
    allowed[:128] = False
    run = functools.partial(calls.attention, *operands, implementation=implementation)
    out = run(mask=allowed)
    assert (out[:128] == 0).all()
    assert_close(out[128:], run(mask=Causal())[128:])
    for gradient in gradients(implementation, operands, mask=allowed):
        assert jnp.isfinite(gradient).all()


@row("V32")
def test_any_length_and_a_traced_mask(row, implementation):
    operands = calls.heads(batch=(), queries=200, keys=200, count=1, key_heads=1)
    allowed = np.random.default_rng(6).random((200, 200)) < 0.5
    out = calls.attention(**operands, mask=allowed, implementation=implementation)  # jitted
    assert_close(out, oracle.attention(**operands, mask=allowed).out)


@row("V34")
def test_weights_of_a_sample_that_is_all_padding(row):
    operands, mask = calls.heads(), Lengths(key=jnp.array([0, 7]))

    def loss(operands):
        out, weights = jaxattn.attention_with_weights(**operands, mask=mask)
        return jnp.sum(out**2) + jnp.sum(weights**2)

    got = calls.jit(jax.grad(loss))(operands)
    for name, gradient in got.items():
        assert jnp.isfinite(gradient).all() and (gradient[0] == 0).all(), name


@row("V35")
def test_mask_of_one_row(row, implementation):
    allowed = np.array([[True, True, False, True, False, False, True]])
    calls.check(implementation, calls.heads(), {"mask": allowed})


@row("V36")
def test_one_mask_a_sample(row, implementation):
    allowed = np.random.default_rng(7).random((2, 1, 5, 7)) < 0.5
    assert (allowed[0] != allowed[1]).any()
    calls.check(implementation, calls.heads(), {"mask": allowed})


@row("V37")
def test_rotary_bases_do_not_mix(row):
    x, positions = jnp.ones((5, 1, 4)), jnp.arange(5)
    first, second = (rotary(x, positions, base=base) for base in (1e4, 1e6))
    angle = 4 * 1e6 ** (-2 / 4)
    assert_close(second[4, 0, 1], np.cos(angle) - np.sin(angle))
    assert (first != second).any()
