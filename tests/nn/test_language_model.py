"""LanguageModel: nothing flows back in time, and it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxattn.masks import Lengths, Segments
from jaxattn.nn import LanguageModel, next_token_loss
from tests.nn.modules import call, mapped, normal, shapes, shuffled
from tests.tolerances import error

SIZES = dict(vocabulary=11, width=8, layers=1, num_heads=2, context=6)
TOKENS = jnp.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def model(**options):
    """Width 8, float64, with random biases and scales."""
    options = SIZES | dict(param_dtype=jnp.float64) | options
    return shuffled(lambda: LanguageModel(rngs=nnx.Rngs(0), **options))


def influence(module, **options):
    """max |∂logits_i/∂x_j| as [T, T], x_j the embedded token j: its position's row adds to it."""
    graph, table, rest = nnx.split(module, nnx.PathContains("positions"), ...)

    def logits(table):
        module = nnx.merge(graph, table, rest)
        return module(TOKENS[0], rngs=nnx.Rngs(dropout=0), **options)

    (leaf,) = jax.tree.leaves(jax.jit(jax.jacrev(logits))(table))
    return np.abs(leaf).max(axis=(1, 3))


@pytest.mark.parametrize("dropout_rate", [0.0, 0.5])
def test_no_gradient_flows_from_a_logit_to_a_later_token(dropout_rate):
    size = influence(model(layers=2, dropout_rate=dropout_rate), deterministic=False)
    assert (size[np.triu_indices(6, 1)] == 0).all()
    seen = size[np.tril_indices(6)]
    assert (seen > 1e-6).all() if dropout_rate == 0 else (seen > 1e-6).any()


def test_segments_do_not_see_each_other():
    size = influence(model(layers=2), mask=Segments(jnp.array([0, 0, 0, 1, 1, 1])))
    assert (size[3:, :3] == 0).all() and (size[3:, 3:][np.tril_indices(3)] > 1e-6).all()


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_later_tokens_change_nothing(positions):
    module = model(positions=positions, layers=2)
    before, after = call(module, TOKENS), call(module, TOKENS.at[:, 3].set(0))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (np.abs(before - after)[:, 3:].max(axis=-1) > 1e-3).all()


def test_any_number_of_batch_axes():
    module = model()
    out = call(module, TOKENS)
    assert out.shape == (2, 6, 11) and out.dtype == jnp.float64
    assert error(call(module, TOKENS[1]), out[1]) <= 1e-13
    assert error(mapped(module, TOKENS), out) <= 1e-13


def test_padding_at_the_end_changes_nothing_before_it():
    module, length = model(), jnp.array([4, 2])
    want, padded = call(module, TOKENS), call(module, TOKENS, mask=Lengths(key=length))
    assert error(padded[0, :4], want[0, :4]) <= 1e-13
    assert error(padded[1, :2], want[1, :2]) <= 1e-13


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_say_who_came_first(positions):
    module = model(positions=positions)
    swapped = TOKENS[:, jnp.array([1, 0, 2, 3, 4, 5])]
    assert error(call(module, TOKENS)[:, -1], call(module, swapped)[:, -1]) > 1e-3
    if positions == "learned":  # one layer sees a set once all positions are the same
        module.positions.embedding[...] = jnp.zeros((6, 8))
        assert error(call(module, TOKENS)[:, -1], call(module, swapped)[:, -1]) <= 1e-13


def test_context_limits_learned_positions_only():
    long = jnp.zeros((1, 7), int)
    with pytest.raises(ValueError, match=r"T ≤ context = 6, got shape \[1, 7\].*sinusoidal"):
        model()(long)
    assert nnx.eval_shape(lambda: model(positions="sinusoidal")(long)).shape == (1, 7, 11)


def test_tied_head_shares_its_parameter():
    tied, free = (
        shapes(lambda tied=tied: LanguageModel(**SIZES, tied=tied, rngs=nnx.Rngs(0)))
        for tied in (True, False)
    )
    assert free == tied | {("head",): ((8, 11), "float32")}
    for module in (model(), model(tied=False)):
        before = call(module, TOKENS)
        module.embed.embedding[...] = module.embed.embedding[...].at[10].set(0)  # unused token
        after = call(module, TOKENS)
        np.testing.assert_array_equal(before[..., :10], after[..., :10])
        want = before[..., 10] if module.head is not None else jnp.zeros((2, 6))
        np.testing.assert_array_equal(after[..., 10], want)


def test_bfloat16_computes_in_it_and_gives_float32_logits():
    exact = model(param_dtype=jnp.float32)
    half = model(param_dtype=jnp.float32, dtype=jnp.bfloat16, dropout_rate=0.1)
    half.eval()
    logits = call(half, TOKENS)
    assert logits.dtype == jnp.float32
    assert 0 < error(logits, call(exact, TOKENS)) <= 0.05
    without = model(param_dtype=jnp.float32, dtype=jnp.bfloat16)
    np.testing.assert_array_equal(call(without, TOKENS), logits)


def test_dropout_trains_and_evaluates():
    module, twice = model(dropout_rate=0.5), jnp.stack([TOKENS[0]] * 2)
    with pytest.raises(ValueError, match="deterministic"):
        module(TOKENS)
    module.train()
    first, second = np.asarray(call(module, twice)), np.asarray(call(module, twice))
    assert (first != second).any() and (first[0] != first[1]).any()
    module.eval()
    assert error(call(module, twice), call(model(), twice)) <= 1e-14


@pytest.fixture(scope="module")
def fresh():
    """A model as it is made, in float32."""
    sizes = dict(vocabulary=32, width=32, layers=2, num_heads=4, context=32)
    return nnx.jit(lambda: LanguageModel(**sizes, rngs=nnx.Rngs(0)))()


def test_initial_deviations(fresh):
    block = fresh.stack.blocks[1]
    for parameter, deviation in (
        (fresh.embed.embedding, 0.02),
        (fresh.positions.embedding, 0.02),
        (block.attention.query.kernel, 1 / np.sqrt(32)),
        (block.attention.out.kernel, 1 / np.sqrt(4 * 32)),
        (block.feed_forward.hidden.kernel, 1 / np.sqrt(32)),
        (block.feed_forward.out.kernel, 1 / np.sqrt(4 * 128)),
    ):
        # 1024 numbers know their deviation to 2.2 %
        assert abs(np.std(np.asarray(parameter[...])) / deviation - 1) < 0.09


def test_starts_without_an_opinion_and_overfits_a_batch(fresh):
    graph, state = nnx.split(fresh)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 32, (4, 16)))
    optimiser = optax.adam(1e-2)

    def loss(state):
        return next_token_loss(nnx.merge(graph, state)(tokens), tokens)

    def step(carry, _):
        state, memory = carry
        value, gradient = jax.value_and_grad(loss)(state)
        with jax.numpy_dtype_promotion("standard"):  # optax needs it
            updates, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(state, updates), memory), value

    carry = (state, optimiser.init(state))
    _, losses = jax.jit(lambda carry: jax.lax.scan(step, carry, length=100))(carry)
    assert abs(float(losses[0]) - np.log(32)) < 0.1
    assert losses[-1] < 0.05


@pytest.mark.parametrize(
    ("options", "error_type", "message"),
    [
        (dict(vocabulary=0), ValueError, "vocabulary must be at least 1"),
        (dict(layers=0), ValueError, "layers must be at least 1"),
        (dict(context=6.0), TypeError, "context must be an integer"),
        (dict(num_heads=3), ValueError, "must be a multiple of num_heads = 3"),
        (dict(positions="rotary"), ValueError, "positions must be one of 'learned', 'sinusoidal'"),
        (dict(dropout_rate=1.5), ValueError, "dropout_rate must be at least 0 and below 1"),
    ],
)
def test_bad_options(options, error_type, message):
    with pytest.raises(error_type, match=message):
        nnx.eval_shape(lambda: LanguageModel(**(SIZES | options), rngs=nnx.Rngs(0)))


@pytest.mark.parametrize(
    ("tokens", "mask", "error_type", "message"),
    [
        (normal(0, 2, 6), None, TypeError, "tokens must be an integer array"),
        (jnp.array(1), None, ValueError, "tokens must be .* with at least 1 axes"),
        (TOKENS, jnp.ones((6, 6), bool), TypeError, "masks.Dense"),
    ],
)
def test_bad_inputs(tokens, mask, error_type, message):
    with pytest.raises(error_type, match=message):
        model()(tokens, mask=mask)
