"""`Partial` and `merge`: two parts of the keys are one, however they are put together."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn import Partial, merge
from tests import calls, oracle
from tests.tolerances import assert_close, error


def random_part(seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    out, lse = rng.standard_normal((2, 3, 4, 5)), 3 * rng.standard_normal((2, 3, 4))
    return Partial(jnp.asarray(out, dtype), jnp.asarray(lse, dtype))


def empty_part():
    return Partial(jnp.zeros((2, 3, 4, 5)), jnp.full((2, 3, 4), -jnp.inf))


def assert_equal_parts(left, right):
    assert_close(left.out, right.out)
    assert_close(left.lse, right.lse)


def test_commutative_bitwise():
    left, right = random_part(0), random_part(1)
    jax.tree.map(np.testing.assert_array_equal, merge(left, right), merge(right, left))


def test_associative():
    a, b, c = (random_part(seed) for seed in range(3))
    assert_equal_parts(merge(merge(a, b), c), merge(a, merge(b, c)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_empty_is_the_neutral_part(side):
    part = random_part(0)
    pair = (empty_part(), part) if side == "left" else (part, empty_part())
    jax.tree.map(np.testing.assert_array_equal, merge(*pair), part)


def test_two_empty_parts_are_empty():
    jax.tree.map(np.testing.assert_array_equal, merge(empty_part(), empty_part()), empty_part())


def test_what_an_empty_part_holds_does_not_matter():
    part, nan = random_part(0), Partial(jnp.full((2, 3, 4, 5), jnp.nan), empty_part().lse)
    jax.tree.map(np.testing.assert_array_equal, merge(part, nan), part)


@pytest.mark.parametrize("large", [1e3, -1e3, 1e300])
def test_large_logsumexps_do_not_overflow(large):
    part = Partial(random_part(0).out, jnp.full((2, 3, 4), large))
    merged = merge(part, part)
    assert_close(merged.out, part.out)
    assert error(merged.lse / large, (large + np.log(2)) / large * np.ones((2, 3, 4))) < 1e-15


# --- derivatives up to the third, at finite and at infinite logsumexps -------------------------

INFINITE = {
    "both finite": (0.3, -1.2),
    "left empty": (-np.inf, 0.4),
    "right empty": (0.4, -np.inf),
    "both empty": (-np.inf, -np.inf),
}


def merged_number(lse_left, lse_right, out_left, out_right):
    """out and lse of two parts of one row; lse counts where it is finite."""
    left, right = (
        Partial(jnp.reshape(out, (1, 1, 1)), jnp.reshape(lse, (1, 1)))
        for out, lse in ((out_left, lse_left), (out_right, lse_right))
    )
    merged = merge(left, right)
    lse = jnp.where(merged.lse == -jnp.inf, 0, merged.lse)
    return jnp.sum(merged.out) + 2 * jnp.sum(lse)


def in_numpy(lse_left, lse_right, out_left, out_right):
    parts = [(out, lse) for out, lse in ((out_left, lse_left), (out_right, lse_right))]
    parts = [(out, lse) for out, lse in parts if lse != -np.inf]
    if not parts:
        return 0.0
    shares = np.exp([lse for _, lse in parts])
    out = np.sum([share * out for share, (out, _) in zip(shares, parts, strict=True)])
    return out / shares.sum() + 2 * np.log(shares.sum())


@pytest.mark.parametrize("case", INFINITE)
def test_derivatives_to_third_order(case):
    """All mixed derivatives, by reverse and forward mode, against stencils of the formula.

    At an lse of -inf the part is absent for good: its derivatives are those of the rest alone.
    """
    at = np.array([*INFINITE[case], 0.7, -0.5])
    tangent = np.where(np.isfinite(at), [0.3, -0.8, 0.5, 1.1], 0.0)
    line = lambda t, at: merged_number(*(at + t * tangent))
    orders = {
        "reverse": calls.jit(jax.grad(jax.grad(jax.grad(line)))),
        "forward": calls.jit(jax.jacfwd(jax.jacfwd(jax.jacfwd(line)))),
    }
    d = functools.partial(calls.derivative, step=0.02)
    want = d(lambda r: d(lambda s: d(lambda t: in_numpy(*(at + (r + s + t) * tangent)))))
    for name, derivative in orders.items():
        assert error(derivative(0.0, at), want) < 1e-7, name


@pytest.mark.parametrize("case", INFINITE)
def test_every_derivative_is_finite(case):
    """Also those in an lse of -inf and in an out without weight: exactly 0."""
    at = jnp.array([*INFINITE[case], 0.7, -0.5])
    number = lambda at: merged_number(*at)
    hessian = jax.hessian(number)
    first, second, third = calls.jit(
        lambda at: (jax.grad(number)(at), hessian(at), jax.jacrev(hessian)(at))
    )(at)
    for x in (first, second, third):
        assert jnp.isfinite(x).all()
    for i in range(2):
        if at[i] == -jnp.inf:
            assert first[i] == 0 and first[i + 2] == 0
            assert (second[i] == 0).all() and (second[i + 2] == 0).all()


# --- parts of attention ------------------------------------------------------------------------


@pytest.mark.parametrize("borders", [(0, 3, 7), (0, 0, 7), (0, 1, 4, 7)], ids=str)
def test_parts_of_the_keys_are_the_whole(implementation, borders):
    operands = calls.heads()
    whole = oracle.attention(**operands)
    parts = [
        calls.partial_attention(
            operands["query"],
            operands["key"][:, a:b],
            operands["value"][:, a:b],
            implementation=implementation,
        )
        for a, b in zip(borders[:-1], borders[1:], strict=True)
    ]
    merged = functools.reduce(merge, parts)
    assert_close(merged.out, whole.out)
    assert_close(merged.lse, whole.lse)


def test_sink_is_a_merge(implementation):
    operands, sink = calls.heads(), np.linspace(-1, 1, 4)
    part = calls.partial_attention(**operands, implementation=implementation)
    other = Partial(jnp.zeros_like(part.out), jnp.broadcast_to(sink, part.lse.shape))
    out = calls.attention(**operands, sink=sink, implementation=implementation)
    assert_close(merge(part, other).out, out)
    assert_close(merge(part, other).lse, oracle.attention(**operands, sink=sink).lse)


def test_sink_of_an_empty_row(implementation):
    mask = np.zeros((5, 7), bool)
    out = calls.attention(**calls.heads(), mask=mask, sink=0.0, implementation=implementation)
    assert (out == 0).all()


def test_gradient_through_parts_is_that_of_the_whole(implementation):
    operands = calls.heads()

    def by_parts(operands):
        query, key, value = (operands[name] for name in ("query", "key", "value"))
        run = functools.partial(jaxattn.partial_attention, query, implementation=implementation)
        return merge(*(run(key[:, a:b], value[:, a:b]) for a, b in ((0, 3), (3, 7)))).out

    cotangent = jnp.ones((2, 5, 4, 6))
    gradient = calls.jit(lambda x: jax.vjp(by_parts, x)[1](cotangent)[0])(
        jax.tree.map(jnp.asarray, operands)
    )
    _, whole = calls.out_and_gradients(operands, cotangent, implementation=implementation)
    for name, x in gradient.items():
        assert_close(x, whole[name])
