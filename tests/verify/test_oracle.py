"""The oracle is itself held against JAX's derivatives of a dense attention, and the integrals
against a simulation: a yardstick that is wrong would pass what is wrong."""

import jax
import numpy as np
import pytest

from jaxattn.verify import calculus, dense_attention, oracle, problem
from jaxattn.verify.compiling import compiled
from jaxattn.verify.integrals import averages_on, exact_averages
from jaxattn.verify.problem import Shape

SHAPES = {
    "square": Shape(),
    "grouped": Shape(N=4, K=2),
    "cross": Shape(T=5, S=9, Hv=3),
    "no batch": Shape(batch=()),
}


@pytest.fixture(params=list(SHAPES))
def given(request):
    return problem(1, "float64", SHAPES[request.param])


def both(given):
    return lambda *x: dense_attention(*x, given.mask, returns_lse=True)


def through(operation, given, *arrays):
    """The operation of calculus on the dense attention, compiled."""
    attend = both(given)
    return compiled(lambda *arrays: operation(attend, *arrays))(given.x, *arrays)


def close(got, expected):
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(
            np.asarray(left), right, rtol=0, atol=1e-13 * max(1, np.abs(right).max())
        )


def test_value_and_first_derivatives(given):
    at = oracle.softmax(given.x, given.mask)
    cotangents = (given.cotangent, given.lse_cotangent)
    close(through(calculus.value, given), (at.out, at.lse))
    close(through(calculus.push, given, given.tangent), oracle.tangent(at, given.tangent))
    gradients = oracle.adjoint(at, *cotangents, heads=given.shape.K)
    close(through(calculus.pull, given, cotangents), gradients)


def test_second_derivatives(given):
    at = oracle.softmax(given.x, given.mask)
    cotangents = (given.cotangent, given.lse_cotangent)
    hessian = oracle.hessian(at, given.tangent, *cotangents, heads=given.shape.K)
    close(through(calculus.forward_over_reverse, given, given.tangent, cotangents), hessian)
    mixed = oracle.mixed(at, given.tangent, given.second_tangent)
    second = through(calculus.forward_over_forward, given, given.tangent, given.second_tangent)
    close(second[0], mixed)


def test_empty_rows_are_zero():
    given = problem(0, "float64")
    mask = given.mask.copy()
    mask[4] = False
    at = oracle.softmax(given.x, mask)
    assert not at.out[:, 4].any() and np.all(at.lse[:, 4] == -np.inf)
    gradients = oracle.adjoint(at, given.cotangent, given.lse_cotangent)
    assert all(np.all(np.isfinite(array)) for array in gradients) and not gradients[0][:, 4].any()


@pytest.mark.parametrize(
    ("variance", "entropy", "participation"),
    [(0.25, 6.8066, 0.00125), (1, 6.433, 0.00264), (16, 2.349, 0.273), (256, 0.386, 0.798)],
)
def test_integrals_agree_with_the_table(variance, entropy, participation):
    found = exact_averages(1024, variance)
    assert found == pytest.approx((entropy, participation), abs=6e-4)


def test_integrals_agree_with_a_simulation():
    scores = 2 * np.random.default_rng(0).standard_normal((20000, 64))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    entropy = -(weights * np.log(weights)).sum(-1)
    square = (weights**2).sum(-1)
    exact = averages_on(64, np.array([4.0, 4.0]))
    for sample, truth in zip((entropy, square), exact, strict=True):
        assert abs(sample.mean() - truth[0]) < 4 * sample.std() / np.sqrt(sample.size)
