"""GRU, encoder and decoder, with attention and without; greedy and beam search."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import (
    GRU,
    GRUWeights,
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentEncoderDecoder,
    beam_search,
    greedy_search,
    gru,
)
from tests.calls import jit
from tests.differentiation import check_derivatives, orders
from tests.nn.modules import call, normal, shapes, shuffled
from tests.tolerances import error

LENGTHS = jnp.array([4, 0, 2])


def weights(inputs=2, hidden=3):
    gates = 3 * hidden
    sizes = (inputs, gates), (hidden, gates), (gates,), (gates,)
    return GRUWeights(*(0.7 * normal(i, *size) for i, size in enumerate(sizes)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(inputs, w, state, length, reverse):
    """One sequence, gate by gate."""
    w = [np.asarray(x) for x in w]
    size = state.shape[-1]
    states = np.zeros((inputs.shape[0], size))
    for t in list(range(length))[:: -1 if reverse else 1]:
        x, h = inputs[t] @ w[0] + w[2], state @ w[1] + w[3]
        r, z = (sigmoid(x[i : i + size] + h[i : i + size]) for i in (0, size))
        n = np.tanh(x[2 * size :] + r * h[2 * size :])
        state = (1 - z) * n + z * state
        states[t] = state
    return states, state


@pytest.mark.parametrize("reverse", [False, True])
def test_gru_is_the_equations_for_each_length(reverse):
    inputs, first = np.asarray(normal(5, 3, 4, 2)), np.asarray(normal(6, 3, 3))
    poisoned = inputs.copy()
    for example, length in enumerate(np.asarray(LENGTHS)):
        poisoned[example, length:] = np.nan
    states, final = gru(
        jnp.asarray(poisoned), weights(), state=jnp.asarray(first), lengths=LENGTHS, reverse=reverse
    )
    for example, length in enumerate(np.asarray(LENGTHS)):
        want = by_hand(inputs[example], weights(), first[example], length, reverse)
        assert error(states[example], want[0]) <= 1e-14
        assert error(final[example], want[1]) <= 1e-14


@orders
def test_gru_derivatives_with_poisoned_padding(reverse):
    inputs = normal(5, 4, 2).at[3].set(jnp.nan)

    def run(first, *parameters):
        given = jnp.where(jnp.isnan(inputs), inputs, first)
        return gru(given, GRUWeights(*parameters), lengths=jnp.array(3)).states

    check_derivatives(run, jnp.nan_to_num(inputs), *weights(), reverse=reverse)


def encoder(**options):
    return shuffled(
        lambda: RecurrentEncoder(9, 4, 3, param_dtype=jnp.float64, rngs=nnx.Rngs(0), **options)
    )


def test_encoder_reads_each_sequence_as_if_alone():
    module, tokens = encoder(), jnp.array([[1, 2, 3, 4], [5, 6, 7, 8], [3, 3, 0, 10**6]])
    states, final = call(module, tokens, lengths=LENGTHS)
    assert states.shape == (3, 4, 6) and final.shape == (3, 6)
    alone = call(module, tokens[2, :2])
    assert error(states[2, :2], alone[0]) <= 1e-14 and error(final[2], alone[1]) <= 1e-14
    assert (states[2, 2:] == 0).all()
    assert (states[1] == 0).all() and (final[1] == 0).all()  # an empty sentence
    forward = call(encoder(bidirectional=False), tokens, lengths=LENGTHS)
    assert forward[0].shape == (3, 4, 3)


def model(attention="additive", vocabulary=6):
    return shuffled(
        lambda: RecurrentEncoderDecoder(
            9,
            vocabulary,
            width=4,
            hidden=3,
            attention=attention,
            param_dtype=jnp.float64,
            rngs=nnx.Rngs(0),
        )
    )


SOURCE = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8], [3, 3, 0, 10**6]])
TARGET = jnp.array([[1, 2, 3], [0, 4, 4], [2, 1, 5]])


@nnx.jit
def both_ways(module):
    """Logits by teacher forcing, one step after the other, and alignments."""
    read = module.read(SOURCE, LENGTHS)
    state, steps = module.decoder.start(read), []
    for t in range(TARGET.shape[1]):
        state, logits = module.decoder.step(state, TARGET[:, t], read)
        steps.append(logits)
    whole = module(SOURCE, TARGET, lengths=LENGTHS)
    return whole, jnp.stack(steps, axis=1), module.decoder.alignments(TARGET, read)


@pytest.mark.parametrize(
    "attention",
    ["additive", *(pytest.param(x, marks=pytest.mark.slow) for x in ("multiplicative", None))],
)
def test_teacher_forcing_is_step_by_step(attention):
    whole, steps, alignments = both_ways(model(attention))
    assert whole.shape == (3, 3, 6) and jnp.isfinite(whole).all()
    assert error(whole, steps) <= 1e-14
    total = np.array([1.0, 0.0, 1.0]) * (attention is not None)
    assert error(alignments.sum(axis=-1), np.broadcast_to(total[:, None], (3, 3))) <= 1e-14
    assert (alignments[2, :, 2:] == 0).all()


@nnx.jit
def one_step(decoder, states, final, first):
    source = decoder.read(jnp.asarray(states), jnp.asarray(final))
    return decoder.start(source), *decoder.step(first, jnp.array(2), source)


def test_decoder_is_the_equations():
    """Additive attention, state and logits of one step, from the parameters."""
    module = model().decoder
    states, final, first = (np.asarray(normal(*x)) for x in ((1, 4, 6), (2, 6), (3, 3)))
    got_start, got_state, got_logits = one_step(module, states, final, first)
    p = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(module)))
    a = p["attention"]
    scores = np.tanh(first @ a["w_query"] + states @ a["w_key"]) @ a["vector"]
    context = np.exp(scores) @ states / np.exp(scores).sum()
    embedded = p["embed"]["embedding"][2]
    g = [p["gru"][name] for name in ("w_input", "w_state", "b_input", "b_state")]
    inputs = np.concatenate([embedded, context])[None]
    want = by_hand(inputs, g, first, 1, False)[1]
    assert error(got_state, want) <= 1e-14
    joined = np.concatenate([want, context, embedded])
    assert error(got_logits, joined @ p["out"]["kernel"] + p["out"]["bias"]) <= 1e-14
    start = np.tanh(final @ p["first"]["kernel"] + p["first"]["bias"])
    assert error(got_start, start) <= 1e-14


@nnx.jit
def moved_by_the_states(module):
    """How far logits move when all but the final state of the source changes."""
    source = module.read(SOURCE, LENGTHS)
    other = source._replace(states=source.states + 1, keys=source.keys * 2)
    return module.decoder(TARGET, other) - module.decoder(TARGET, source)


def test_without_attention_only_the_final_state_is_read():
    assert (moved_by_the_states(model("additive")) != 0).any()
    assert (moved_by_the_states(model(None)) == 0).all()


@nnx.jit
def searched(module):
    options = dict(start=0, end=3, length=3)
    narrow, wide = (module.beam(SOURCE, LENGTHS, beams=b, **options) for b in (1, 16))
    return module.greedy(SOURCE, LENGTHS, **options), narrow, wide


@pytest.mark.slow
def test_search_against_all_sequences():
    """A beam of 1 is greedy; one that holds everything finds the best of all sequences."""
    module = model(vocabulary=4)
    greedy, narrow, wide = searched(module)
    np.testing.assert_array_equal(narrow.tokens[:, 0], greedy)
    scores = every_sequence(module)
    for example, table in enumerate(scores):
        best = sorted(table.items(), key=lambda item: -item[1])
        for place in range(5):
            tokens, score = best[place]
            assert tuple(np.asarray(wide.tokens[example, place])) == tokens
            assert abs(wide.log_probability[example, place] - score) < 1e-12
    assert (np.diff(wide.log_probability, axis=-1) <= 0).all()


def every_sequence(module, length=3, end=3):
    """Log-probability of each sequence that ends, or is cut, for each example."""
    tables = [{} for _ in SOURCE]
    sequences = list(itertools.product(range(4), repeat=length))
    target = jnp.asarray([(0, *tokens[:-1]) for tokens in sequences])
    shape = (len(SOURCE), *target.shape)
    source = jnp.broadcast_to(SOURCE[:, None], (*shape[:2], SOURCE.shape[-1]))
    lengths = jnp.broadcast_to(LENGTHS[:, None], shape[:2])
    logits = call(module, source, jnp.broadcast_to(target, shape), lengths=lengths)
    for table, log_p in zip(tables, np.asarray(jax.nn.log_softmax(logits)), strict=True):
        for tokens, row in zip(sequences, log_p, strict=True):
            stop = tokens.index(end) + 1 if end in tokens else length
            key = tokens[:stop] + (end,) * (length - stop)
            table[key] = sum(row[t, tokens[t]] for t in range(stop))
    return tables


def test_greedy_stops_at_the_end_for_each_example():
    count = lambda state, tokens: (state + 1, jax.nn.one_hot(tokens + 1, 8))
    tokens = jit(lambda first: greedy_search(count, first, first, end=5, length=4))(
        jnp.array([0, 3, 4])
    )
    np.testing.assert_array_equal(tokens, [[1, 2, 3, 4], [4, 5, 5, 5], [5, 5, 5, 5]])


def test_length_penalty_prefers_longer():
    """0 ends at once with 0.6; going on costs more, but each token less."""
    table = jnp.log(jnp.array([[0.0, 0.4, 0.6], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    step = lambda state, tokens: (state, table[tokens])
    run = jit(
        lambda a: beam_search(
            step, (), jnp.array(0), end=2, length=3, beams=2, length_penalty=a
        ).tokens[0]
    )
    np.testing.assert_array_equal(run(0.0), [2, 2, 2])
    np.testing.assert_array_equal(run(9.0), [1, 2, 2])


def test_parameters_and_their_shapes():
    got = shapes(lambda: GRU(2, 3, rngs=nnx.Rngs(0)))
    assert {path[0]: shape for path, (shape, _) in got.items()} == {
        "w_input": (2, 9),
        "w_state": (3, 9),
        "b_input": (9,),
        "b_state": (9,),
    }


@pytest.mark.slow
def test_a_model_learns_to_copy():
    """A few steps of gradient descent on copying lower the loss: everything is connected."""
    module = model(vocabulary=9)
    graph, state = nnx.split(module)
    source = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    given = jnp.concatenate([jnp.zeros_like(source[:, :1]), source[:, :-1]], axis=1)

    def loss(state):
        logits = nnx.merge(graph, state)(source, given)
        log_p = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(log_p, source[..., None], axis=-1))

    step = jit(jax.value_and_grad(loss))
    values = []
    for _ in range(30):
        value, gradient = step(state)
        values.append(float(value))
        state = jax.tree.map(lambda p, g: p - 0.5 * g, state, gradient)
    assert values[-1] < 0.5 * values[0]
    assert all((np.asarray(g) != 0).any() for g in jax.tree.leaves(gradient))


def test_bad_input():
    with pytest.raises(ValueError, match="attention must be one of 'additive', 'multiplicative'"):
        RecurrentDecoder(9, 4, 3, 6, attention="dot", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="hidden must be at least 1"):
        RecurrentEncoder(9, 4, 0, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"lengths must be \[\*B\] = \[3\], got shape \[2\]"):
        encoder()(SOURCE, jnp.array([1, 2]))
    with pytest.raises(TypeError, match="lengths must be an integer array"):
        encoder()(SOURCE, jnp.ones(3))
    with pytest.raises(TypeError, match="tokens must be an integer array"):
        encoder()(jnp.ones((3, 4)))
    with pytest.raises(ValueError, match="beams must be at least 1"):
        beam_search(lambda s, t: (s, t), (), jnp.array(0), end=1, length=2, beams=0)
    with pytest.raises(ValueError, match="length must be at least 1"):
        greedy_search(lambda s, t: (s, t), (), jnp.array(0), end=1, length=0)
