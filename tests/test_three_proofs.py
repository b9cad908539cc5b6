"""Three properties that define attention, proved on the code with chex and autodiff.

1. Self-attention without positions does not know the order of tokens; positions tell it.
2. A causal mask stops gradients: what comes later has derivative exactly 0.
3. Without 1/√c the softmax saturates as the head size c grows, by exactly as much as theory says.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from experiments import saturation_integrals as exact
from jaxattn.masks import Causal
from jaxattn.positions import sinusoidal
from tests import calls

TOKENS, WIDTH = 7, 8


def weights_and_tokens(batch=()):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((*batch, TOKENS, WIDTH))
    return x, [rng.standard_normal((WIDTH, WIDTH)) for _ in range(3)]


# --- 1: permutation equivariance ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_self_attention_is_equivariant(seed):
    x, weights = weights_and_tokens()
    order = np.random.default_rng(seed).permutation(TOKENS)
    run = calls.jit(jaxattn.self_attention)
    chex.assert_trees_all_close(run(x[order], *weights), run(x, *weights)[order], atol=1e-14)


def test_its_derivative_is_equivariant():
    x, weights = weights_and_tokens()
    order = np.random.default_rng(0).permutation(TOKENS)
    jacobian = calls.jit(jax.jacrev(lambda x: jaxattn.self_attention(x, *weights)))
    moved = np.asarray(jacobian(x))[order][:, :, order]
    chex.assert_trees_all_close(jacobian(x[order]), moved, atol=1e-13)


def test_many_heads_are_equivariant_in_queries_and_invariant_in_keys(implementation):
    operands = calls.heads()
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(5), rng.permutation(7)
    run = functools.partial(calls.attention, implementation=implementation)
    out = run(**operands)
    query, key, value = operands.values()
    chex.assert_trees_all_close(run(query[:, rows], key, value), out[:, rows], atol=1e-14)
    chex.assert_trees_all_close(run(query, key[:, columns], value[:, columns]), out, atol=1e-14)


@pytest.mark.parametrize("breaker", ["positions", "causal mask"])
def test_positions_break_it(breaker):
    x, weights = weights_and_tokens()
    order = np.roll(np.arange(TOKENS), 1)
    added = sinusoidal(jnp.arange(TOKENS), WIDTH).astype(x.dtype) if breaker == "positions" else 0.0
    mask = Causal() if breaker == "causal mask" else None

    @calls.jit
    def run(x):
        return jaxattn.self_attention(x + added, *weights, mask=mask)

    chex.assert_tree_all_finite(run(x))
    assert np.max(np.abs(run(x[order]) - run(x)[order])) > 0.1


# --- 2: causal masks stop gradients ------------------------------------------------------------


def one_head_from_x(implementation):
    """`x [T, D] -> out [T, D]`, with query, key and value from the same x."""
    _, weights = weights_and_tokens()

    def run(x):
        query, key, value = (jaxattn.project(x, w)[:, None] for w in weights)
        out = jaxattn.attention(query, key, value, mask=Causal(), implementation=implementation)
        return out[:, 0]

    return run


def influence(jacobian):
    """`max |∂out_i / ∂x_j|` over features, `[T, T]`, from a Jacobian `[T, ..., T, ...]`."""
    jacobian = np.abs(np.asarray(jacobian))
    tokens = [axis for axis, size in enumerate(jacobian.shape) if size == TOKENS]
    assert len(tokens) == 2, jacobian.shape
    return jacobian.max(axis=tuple(set(range(jacobian.ndim)) - set(tokens)))


def assert_causal(jacobian, *, alone_counts=True):
    """Exactly 0 above the diagonal; nothing 0 on it and below.

    A key that is alone in its row has all the weight whatever it says, so that ∂out_0/∂key_0 = 0.
    """
    found = influence(jacobian)
    future = np.triu(np.ones((TOKENS, TOKENS), bool), 1)
    assert (found[future] == 0).all()
    past = ~future
    past[0, 0] = alone_counts
    assert (found[past] > 0).all()


HOW = [(how, mode) for how in ("jit", "vmap") for mode in ("jacrev", "jacfwd")]


@pytest.mark.parametrize(("how", "mode"), [("eager", "jacrev"), *HOW])
def test_causal_gradients_in_x(implementation, how, mode):
    x, _ = weights_and_tokens()
    jacobian = getattr(jax, mode)(one_head_from_x(implementation))
    if how == "eager":
        assert_causal(jacobian(x))
    if how == "jit":
        assert_causal(calls.jit(jacobian)(x))
    if how == "vmap":
        # No saturated rows among them: there a true derivative may lie below rounding.
        for one in calls.jit(jax.vmap(jacobian))(np.stack([x, -x, x / 2])):
            assert_causal(one)


@pytest.mark.parametrize(("how", "mode"), [("eager", "jacfwd"), *HOW])
def test_causal_gradients_in_key_and_value(implementation, how, mode):
    sizes = {"queries": TOKENS, "keys": TOKENS, "count": 2, "value_size": 3}
    operands = calls.heads(batch=(3,) if how == "vmap" else (), **sizes).values()

    def run(query, key, value):
        return jaxattn.attention(query, key, value, mask=Causal(), implementation=implementation)

    jacobian = getattr(jax, mode)(run, argnums=(1, 2))
    if how == "jit":
        jacobian = calls.jit(jacobian)
    if how == "vmap":
        jacobian = calls.jit(jax.vmap(jacobian))
    by_key, by_value = jacobian(*map(jnp.asarray, operands))
    for one in by_key if how == "vmap" else [by_key]:
        assert_causal(one, alone_counts=False)
    for one in by_value if how == "vmap" else [by_value]:
        assert_causal(one)


def test_the_future_changes_nothing(implementation):
    """The same said of values: other later tokens leave earlier rows bitwise as they were."""
    run = calls.jit(one_head_from_x(implementation))
    x, _ = weights_and_tokens()
    other = x.copy()
    other[4:] = 1e30
    chex.assert_trees_all_equal(run(x)[:4], run(other)[:4])


# --- 3: saturation -----------------------------------------------------------------------------

KEYS, ROWS = 128, 500
STATISTICS = ("entropy", "participation", "jacobian_norm_squared", "largest_weight")


@functools.cache
def measured(size, scaled):
    """Statistics of rows of softmax(σ q Kᵀ), q, K ~ N(0, 1), and c_i = σ² ‖q_i‖² of each row.

    Each row has keys of its own: given the query its scores are independent N(0, c_i), and rows
    are independent of each other, so that standard errors are what they seem.
    """
    rng = np.random.default_rng(size)
    query = rng.standard_normal((ROWS, 1, size))
    key = rng.standard_normal((ROWS, KEYS, size))
    scale = None if scaled else 1.0
    weights, jacobian = weights_and_jacobian(query, key, scale)
    c = np.sum(query**2, axis=(-1, -2)) * (1 / size if scaled else 1.0)
    return statistics(np.asarray(weights), np.asarray(jacobian)), c


@functools.partial(calls.jit, static_argnames="scale")
def weights_and_jacobian(query, key, scale):
    """Weights `[rows, S]`, and their Jacobian by the scores `[rows, S, S]`, by autodiff."""
    scores = jaxattn.attention_scores(query, key, scale)[:, 0]

    def one_row(scores):
        return jaxattn.attention_weights(scores[None])[0]

    return jax.vmap(one_row)(scores), jax.vmap(jax.jacrev(one_row))(scores)


def statistics(p, jacobian):
    logarithm = np.log(p, where=p > 0, out=np.zeros_like(p))
    return {
        "entropy": -np.sum(p * logarithm, axis=-1),
        "participation": np.sum(p**2, axis=-1),
        "jacobian_norm_squared": np.sum(jacobian**2, axis=(-1, -2)),
        "largest_weight": p.max(axis=-1),
    }


def expected(name, c):
    """The exact integral at every row's c, by a polynomial in log c through 10 of its values."""
    integral = getattr(exact, f"expected_{name}")
    span = np.log([c.min(), c.max()])
    fitted = np.polynomial.Chebyshev.interpolate(
        lambda x: np.array([integral(float(np.exp(each)), KEYS) for each in x]), 9, span
    )
    return fitted(np.log(c))


def standard_errors(name, size, scaled, factor=1.0):
    """How many standard errors theory at `factor · c` lies from the mean that was measured."""
    found, c = measured(size, scaled)
    difference = found[name] - expected(name, factor * c)
    return abs(difference.mean()) / (difference.std(ddof=1) / np.sqrt(ROWS))


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "unscaled"])
@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("name", STATISTICS)
def test_saturation_is_what_theory_says(name, size, scaled):
    assert standard_errors(name, size, scaled) < 3


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_forgotten_scale_is_seen(name, size):
    """σ = 1 in place of 1/√c: theory with the scale, measured without, is far off."""
    assert standard_errors(name, size, scaled=False, factor=1 / size) > 10


def test_scaling_makes_every_number_independent_of_the_head_size():
    for name in STATISTICS:
        small, large = (measured(size, True)[0][name].mean() for size in (16, 64))
        assert small == pytest.approx(large, rel=0.1), name
    entropies = [measured(size, False)[0]["entropy"].mean() for size in (16, 64)]
    assert entropies[1] < entropies[0] / 2


def test_unscaled_rows_freeze():
    """With σ = 1 at c = 64 some rows have no gradient left; with the scale none."""
    scaled, unscaled = (
        np.sqrt(measured(64, scaled)[0]["jacobian_norm_squared"]) for scaled in (True, False)
    )
    assert scaled.min() > 0.05
    assert np.mean(unscaled < 1e-2) > 0.02
