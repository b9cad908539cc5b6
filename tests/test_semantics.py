"""The ten rules of the contract's section 4, each a test, on every implementation."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal, Dense, Lengths, SlidingWindow
from tests import calls, jaxprs, oracle
from tests.tolerances import FORWARD, GRADIENT, assert_close, error


def scalar(implementation, **options):
    """A smooth number that depends on out and on lse, wherever lse is finite."""

    def loss(operands):
        partial = jaxattn.partial_attention(**operands, **options, implementation=implementation)
        filled = partial.lse != -jnp.inf
        lse = jnp.where(filled, partial.lse, 0)
        return jnp.sum(jnp.sin(partial.out)) + jnp.sum(jnp.cos(lse))

    return loss


def three_orders(loss):
    """Value, gradient, and the second and third derivative along directions, in one program."""

    def along(function, u):
        return lambda x: sum(jnp.sum(g * u[name]) for name, g in jax.grad(function)(x).items())

    def all_orders(operands, first, second):
        once, twice = along(loss, first), along(along(loss, first), second)
        forward = jax.jvp(jax.grad(once), (operands,), (second,))[1]
        return loss(operands), *(jax.grad(f)(operands) for f in (loss, once, twice)), forward

    return calls.jit(all_orders)


def directions(operands):
    """Two directions, made from zeros so that poison in the operands stays out of them."""
    return calls.like(operands, seed=8), calls.like(operands, seed=9)


SMALL = {"queries": 3, "keys": 4, "count": 2, "key_heads": 1, "size": 2, "value_size": 2}


# --- 1: empty rows -----------------------------------------------------------------------------

EMPTIED = {
    "mask": lambda: {"mask": np.zeros((1, 1, 3, 4), bool)},
    "length 0": lambda: {"mask": Lengths(key=jnp.array([0]))},
    "bias of -inf": lambda: {"bias": np.full((3, 4), -np.inf)},
    "query positions below 0": lambda: {"query_positions": np.array([-3, -2, -1])},
    "key positions below 0": lambda: {"key_positions": np.full(4, -1)},
}


@pytest.mark.parametrize("emptied_by", EMPTIED)
def test_1_empty_rows_are_zero(implementation, emptied_by):
    operands, options = calls.heads(batch=(1,), **SMALL), EMPTIED[emptied_by]()
    partial = calls.partial_attention(**operands, **options, implementation=implementation)
    assert (partial.out == 0).all() and (partial.lse == -jnp.inf).all()
    for x in calls.jit(jax.grad(scalar(implementation, **options)))(operands).values():
        assert (x == 0).all()


SELDOM = [pytest.param(name, marks=pytest.mark.slow) for name in EMPTIED if name != "length 0"]


@pytest.mark.parametrize("emptied_by", ["length 0", *SELDOM])
def test_1_empty_rows_are_zero_to_third_order(implementation, emptied_by):
    operands, options = calls.heads(batch=(1,), **SMALL), EMPTIED[emptied_by]()
    loss = scalar(implementation, **options)
    _, *derivatives = three_orders(loss)(operands, *directions(operands))
    for order, gradients in enumerate(derivatives, 1):
        for name, x in gradients.items():
            assert (x == 0).all(), (order, name)


def test_1_no_keys_at_all(implementation):
    operands = calls.heads(batch=(1,), **(SMALL | {"keys": 0}))
    partial = calls.partial_attention(**operands, implementation=implementation)
    assert (partial.out == 0).all() and (partial.lse == -jnp.inf).all()
    gradient = calls.jit(jax.grad(scalar(implementation)))(operands)
    assert (gradient["query"] == 0).all()


def test_1_one_empty_row_among_others(implementation):
    """Only the empty row is 0; the derivatives of the others are the oracle's."""
    allowed = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]], bool)
    operands = calls.heads(batch=(1,), **SMALL)
    calls.check(implementation, operands, {"mask": allowed})


def test_1_a_score_mod_that_is_infinitely_steep_where_it_takes_a_pair_out(implementation):
    """log w_j is -inf at w_j = 0, with a slope of inf, which must not reach the tangent."""
    operands = calls.heads(queries=5, keys=7)
    gate = jnp.array([0.5, 0.0, 2.0, 1.0, 0.0, 0.3, 1.5])
    taken = gate > 0

    def gated(gate, **options):
        def mod(scores, query_positions, key_positions):
            return scores + jnp.log(gate)[key_positions]

        return jaxattn.attention(
            **operands, score_mod=mod, **options, implementation=implementation
        )

    def masked(gate):
        return gated(jnp.where(taken, gate, 1), mask=jnp.broadcast_to(taken, (5, 7)))

    got, want = (jax.jvp(f, (gate,), (jnp.ones_like(gate),)) for f in (gated, masked))
    assert_close(got[0], want[0])
    assert_close(got[1], want[1])


# --- 2: inert padding --------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [np.nan, pytest.param(np.inf, marks=pytest.mark.slow)], ids=str)
def test_2_padding_is_inert_bitwise_to_third_order(implementation, poison):
    """Keys nobody attends to, and queries that attend to nothing: whatever they hold."""
    clean = calls.heads(batch=(1,), **SMALL)
    dirty = {name: x.copy() for name, x in clean.items()}
    dirty["query"][:, 2:], dirty["key"][:, 3:], dirty["value"][:, 3:] = poison, poison, poison
    run = three_orders(scalar(implementation, mask=Lengths(query=2, key=3)))
    same, got = (run(x, *directions(clean)) for x in (clean, dirty))
    jax.tree.map(np.testing.assert_array_equal, got, same)
    for gradient in got[1:]:
        assert all(jnp.isfinite(x).all() for x in gradient.values())
        assert (gradient["query"][:, 2:] == 0).all()
        assert (gradient["key"][:, 3:] == 0).all() and (gradient["value"][:, 3:] == 0).all()
    assert all((x != 0).any() for x in got[1].values())


def test_2_finite_padding_never_matters(implementation):
    """A key that some rows attend to changes nothing, bitwise, in rows that may not."""
    allowed = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]], bool)
    clean = calls.heads(batch=(1,), **SMALL)
    other = {name: x.copy() for name, x in clean.items()}
    other["key"][:, 3], other["value"][:, 3] = 1e30, -1e30
    out, changed = (
        calls.attention(**x, mask=allowed, implementation=implementation) for x in (clean, other)
    )
    np.testing.assert_array_equal(out[:, [0, 2]], changed[:, [0, 2]])
    assert (out[:, 1] != changed[:, 1]).any()


# --- 3: causality ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["jacrev", "jacfwd"])
def test_3_causal_derivatives_are_exactly_zero(implementation, mode):
    operands = calls.heads(batch=(), **(SMALL | {"queries": 5, "keys": 5}))

    def run(operands):
        return jaxattn.attention(**operands, mask=Causal(), implementation=implementation)

    jacobian = calls.jit(getattr(jax, mode)(run))(operands)
    for name in ("key", "value"):
        by_pair = np.abs(jacobian[name]).max(axis=(1, 2, 4, 5))  # [T, S]
        assert (by_pair[np.triu_indices(5, 1)] == 0).all()
        assert (by_pair[np.tril_indices(5, -1)] > 0).all()


# --- 4: positions and alignment ----------------------------------------------------------------


@pytest.mark.parametrize("mask", [Causal, functools.partial(SlidingWindow, 1, 1)])
def test_4_alignment_must_be_said(implementation, mask):
    operands = calls.heads(batch=(), **SMALL)
    with pytest.raises(ValueError, match='align="start".*align="end".*query_positions'):
        jaxattn.attention(**operands, mask=mask(), implementation=implementation)
    rows = {"start": np.arange(3), "end": np.arange(3) + 1}
    run = functools.partial(calls.attention, **operands, implementation=implementation)
    for align, places in rows.items():
        want = run(mask=mask(), query_positions=places)
        assert_close(run(mask=mask(align=align)), want)
    assert (run(mask=mask(align="start")) != run(mask=mask(align="end"))).any()


def test_4_more_queries_than_keys_at_the_end(implementation):
    """The first queries stand before position 0, and a position below 0 is an empty row."""
    operands = calls.heads(batch=(), **(SMALL | {"queries": 4, "keys": 2}))
    out = calls.attention(**operands, mask=Causal("end"), implementation=implementation)
    assert (out[:2] == 0).all() and (out[2:] != 0).any(axis=(1, 2)).all()


def test_4_positions_below_zero_take_no_part(implementation):
    operands = calls.heads(batch=(2,), **SMALL)
    places = {
        "query_positions": np.array([[0, -1, 2], [5, 4, -7]]),
        "key_positions": np.array([[-1, 0, 1, 2], [3, -5, 4, 9]]),
    }
    calls.check(implementation, operands, places)
    inverted = {"mask": ~SlidingWindow(0, 0)}  # however much the mask allows
    told = {"mask": lambda i, j: i != j} | places
    calls.check(implementation, operands, places | inverted, told)


# --- 5: precision ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_5_sums_are_wide(implementation, dtype):
    """Read off the program: products are summed, and exponentials taken, in float32 or wider."""
    operands = [jnp.asarray(x, dtype) for x in calls.heads(**SMALL).values()]
    wide = jnp.dtype("float64" if dtype == "float64" else "float32")

    def loss(*operands):
        out = jaxattn.attention(*operands, implementation=implementation)
        assert out.dtype == jnp.dtype(dtype)
        return jnp.sum(out.astype(wide))

    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        jaxpr = jax.make_jaxpr(function)(*operands)
        assert {equation.outvars[0].aval.dtype for equation in jaxprs.dots(jaxpr)} == {wide}
        exponentials = [e for e in jaxprs.equations(jaxpr) if e.primitive.name == "exp"]
        assert {equation.outvars[0].aval.dtype for equation in exponentials} == {wide}


def test_5_same_numbers_with_and_without_weights(implementation):
    operands = calls.heads()
    out, weights = calls.attention_with_weights(**operands)
    assert_close(calls.attention(**operands, implementation=implementation), out)
    assert_close(weights, oracle.attention(**operands).weights)


def test_5_large_scores(implementation):
    operands = calls.heads()
    operands["query"] = operands["query"] * 1e3
    out = calls.attention(**operands, implementation=implementation)
    assert error(out, oracle.attention(**operands).out) < 1e3 * FORWARD["float64"]


@pytest.mark.parametrize("large", ["bias", "scores"])  # every tile is mixed, every tile is full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_5_rows_of_large_scores_have_derivatives(implementation, dtype, large):
    """Scores of -1e9 for every key, and nothing beside them: all weights are 1/S = 1/8.

    lse = -1e9 + log 8 is -1e9 in float32: weights made from it would be 1.
    """
    operands = calls.heads(keys=8)
    arrays = {name: jnp.asarray(x, dtype) for name, x in operands.items()}
    cotangent = jnp.ones((2, 5, 4, 6), dtype)
    options = {"implementation": implementation}
    if large == "bias":
        options["bias"] = jnp.full((5, 8), -1e9, dtype)
    else:
        arrays["query"], arrays["key"] = (
            jnp.full_like(arrays[name], x) for name, x in (("query", 1e5), ("key", -1e4))
        )
    out, gradients = calls.out_and_gradients(arrays, cotangent, **options)
    mean = np.mean(np.repeat(np.asarray(arrays["value"], np.float64), 2, axis=2), axis=1)
    assert_close(out, np.broadcast_to(mean[:, None], out.shape))
    assert_close(gradients["value"], np.full((2, 8, 2, 6), 2 * 5 / 8), GRADIENT)


@pytest.mark.parametrize("bent", [{}, {"softcap": 2.0}, {"score_mod": lambda s, i, j: 2 * s}])
def test_2_a_score_that_overflows_where_nobody_looks(implementation, bent):
    """The last key is huge, and masked for all queries but the last, whose loss is not counted."""
    query = jnp.broadcast_to(jnp.array([4.0, -4.0]), (9, 1, 2))
    query, key = query.at[8].set(0), jnp.ones((9, 1, 2)).at[8].set(1e308)

    def loss(query, key, value):
        options = {"mask": Causal(), "implementation": implementation}
        return jnp.sum(jaxattn.attention(query, key, value, **options, **bent)[:8])

    gradients = jax.grad(loss, (0, 1, 2))(query, key, jnp.ones((9, 1, 2)))
    assert all(np.isfinite(x).all() for x in gradients)


def test_2_a_masked_product_that_overflows_leaves_the_scale_alone(implementation):
    """q_0 · k_2 is beyond the largest number, and masked."""
    query, key = (jnp.array(x)[:, None, None] for x in ([1e200, 1, 1e-200], [1e-200, 1, 1e200]))
    value = jnp.array([1.0, 2.0, 3.0])[:, None, None]

    def total(scale):
        options = {"scale": scale, "mask": Causal(), "implementation": implementation}
        return jnp.sum(jaxattn.attention(query, key, value, **options))

    step = (total(jnp.array(1 + 1e-6)) - total(jnp.array(1 - 1e-6))) / 2e-6
    assert abs(jax.grad(total)(jnp.array(1.0)) - step) <= 1e-8


# --- 6: any shape ------------------------------------------------------------------------------

SHAPES = [
    {"queries": 0},
    {"keys": 0, "batch": ()},
    {"queries": 1, "keys": 1, "size": 0},
    {"queries": 2, "keys": 2, "size": 2, "value_size": 0},
    {"queries": 13, "keys": 11, "size": 17, "value_size": 1},
    {"batch": (0,)},
    {"batch": (1, 2, 1), "count": 6, "key_heads": 1},
]


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_6_any_shape(implementation, sizes):
    calls.check(implementation, calls.heads(**sizes))


# --- 7 is test_transforms.py, 8 (linear memory) is tested beside each implementation -----------


# --- 9: determinism ----------------------------------------------------------------------------


def test_9_the_same_twice(implementation):
    operands = {name: jnp.asarray(x, "float32") for name, x in calls.heads().items()}
    cotangent = jnp.ones((2, 5, 4, 6), "float32")
    run = functools.partial(
        calls.out_and_gradients, operands, cotangent, implementation=implementation
    )
    jax.tree.map(np.testing.assert_array_equal, run(), run())


# --- 10: no silent anything --------------------------------------------------------------------


def test_10_an_unknown_implementation_is_named():
    with pytest.raises(ValueError, match="implementation must be None or one of 'dense'.*'fast'"):
        jaxattn.attention(**calls.heads(), implementation="fast")


def test_10_a_refusal_carries_its_reason(monkeypatch):
    """A named implementation that cannot do the job raises; only None chooses another."""
    refusing = jaxattn.IMPLEMENTATIONS[0]._replace(name="new", refusal=lambda inputs: "too long")
    table = (refusing, *jaxattn.IMPLEMENTATIONS)
    monkeypatch.setattr("jaxattn.dispatch.IMPLEMENTATIONS", table)
    with pytest.raises(ValueError, match="implementation='new' cannot do this: too long"):
        jaxattn.attention(**calls.heads(), implementation="new")
    assert jax.eval_shape(jaxattn.attention, *calls.heads().values()).shape == (2, 5, 4, 6)


def test_10_warnings_are_no_way_out(implementation):
    """What is asked for is done or refused: nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropout = {"dropout_rate": 0.5, "dropout_key": jax.random.key(0)}
        mask = Dense(np.ones((5, 7), bool))
        calls.attention(**calls.heads(), mask=mask, **dropout, implementation=implementation)
