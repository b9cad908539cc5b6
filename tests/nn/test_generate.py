"""Generation: what recomputing everything says, in one program and without recompiling."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn import cache as caches
from jaxattn.masks import SlidingWindow
from jaxattn.nn import (
    Decoder,
    Encoder,
    EncoderDecoder,
    FeedForward,
    LanguageModel,
    MultiHeadAttention,
    ResidualBlock,
    RMSNorm,
    Scoring,
    Stack,
    TextEncoder,
    TransformerBlock,
    beam_search,
    generate,
    generate_beams,
    greedy_search,
    keep_top_k,
    keep_top_p,
    sample,
    stream,
)
from jaxattn.positions import Rotary
from tests import calls
from tests.nn.modules import normal, quick, run, shuffled, stacked
from tests.tolerances import error

WIDE = dict(param_dtype=jnp.float64)
SIZES = dict(vocabulary=11, width=8, **WIDE)


def rotary_stack(rngs):
    """Rotary, two key heads of four, a window of three, RMS norms, SwiGLU."""

    def block(rngs):
        scoring = Scoring(rotary=Rotary(), mask=SlidingWindow(2, 0))
        own = MultiHeadAttention(4, 8, num_kv_heads=2, scoring=scoring, rngs=rngs, **WIDE)
        swiglu = FeedForward(8, activation=jax.nn.silu, gated=True, rngs=rngs, **WIDE)
        return ResidualBlock(own, swiglu, make_norm=functools.partial(RMSNorm, **WIDE))

    return Stack(2, block, make_norm=functools.partial(RMSNorm, **WIDE), rngs=rngs)


def scanned_model(rngs, scan=True):
    """Two equal blocks with rotary positions, in one loop or one after the other."""

    def block(rngs):
        own = MultiHeadAttention(2, 8, scoring=Scoring(rotary=Rotary()), rngs=rngs, **WIDE)
        return ResidualBlock(own, FeedForward(8, rngs=rngs, **WIDE))

    stack = Stack(2, block, scan=scan, rngs=rngs)
    return LanguageModel(positions="none", tied=False, stack=stack, rngs=rngs, **SIZES)


def rotary_model(rngs):
    return LanguageModel(positions="none", tied=False, stack=rotary_stack(rngs), rngs=rngs, **SIZES)


def gpt(rngs, **options):
    return LanguageModel(layers=2, num_heads=2, context=10, rngs=rngs, **SIZES, **options)


MODELS = {
    "learned": gpt,
    "sinusoidal": functools.partial(gpt, positions="sinusoidal"),
    "rotary": rotary_model,
}
PROMPTS = jnp.array([[3, 1, 4, 1], [2, 6, 5, 3]])
LEFT = jnp.array([[True] * 4, [False, False, True, True]])
RIGHT = jnp.array([[True] * 4, [True, True, False, False]])


def model(name="learned"):
    return shuffled(lambda: MODELS[name](nnx.Rngs(0)))


def recomputed(module, prompt, steps):
    """Greedily, with everything computed again for each token; later tokens change nothing."""
    written = np.zeros((1, 9), int)
    written[0, : len(prompt)] = prompt
    for i in range(len(prompt), len(prompt) + steps):
        written[0, i] = run(called, module, written)[0, i - 1].argmax()
    return written[0, len(prompt) : len(prompt) + steps]


def called(module, *inputs):
    return module(*inputs)


def continued(module, tokens, valid=None, **static):
    """`generate`, compiled quickly."""
    return run(generate, module, tokens, valid=valid, static=static)


@pytest.mark.parametrize("name", quick(MODELS, "rotary"))
def test_padded_prompts_go_on_as_each_alone(name):
    module = model(name)
    alone = recomputed(module, PROMPTS[0], 5)
    for valid, prompt in ((LEFT, PROMPTS[1, 2:]), (RIGHT, PROMPTS[1, :2])):
        got = continued(module, PROMPTS, valid, steps=5)
        np.testing.assert_array_equal(got.tokens[0], alone)
        np.testing.assert_array_equal(got.tokens[1], recomputed(module, prompt, 5))
        np.testing.assert_array_equal(got.counts, [5, 5])


@pytest.mark.parametrize("name", quick(MODELS, "rotary"))
def test_logits_step_by_step_are_those_of_all_at_once(name):
    """Two rows of 7 and 5 tokens: 4 at once, then one by one."""
    module = model(name)
    tokens = jnp.array([[3, 1, 4, 1, 5, 9, 2], [0, 0, 6, 5, 3, 5, 8]])
    valid = jnp.array([[True] * 7, [False, False] + [True] * 5])

    def both(module):
        cache, outs = module.init_cache(2, 7), []
        for part in (slice(0, 4), slice(4, 5), slice(5, 6), slice(6, 7)):
            logits, cache = module.extend(tokens[:, part], cache, valid=valid[:, part])
            outs.append(logits)
        positions = jnp.cumsum(valid, axis=-1) - 1
        positions = jnp.where(valid, positions, -1)
        padded = module(tokens, positions=positions)
        return jnp.concatenate(outs, 1), padded, module(tokens[0]), module(tokens[1, 2:])

    got, padded, first, second = run(both, module)
    for rows in (got, padded):
        assert error(rows[0], first) <= 1e-12 and error(rows[1, 2:], second) <= 1e-12


def encoder_decoder(rngs):
    def block(rngs):
        own, other = (MultiHeadAttention(2, 8, rngs=rngs, **WIDE) for _ in range(2))
        return ResidualBlock(own, FeedForward(8, rngs=rngs, **WIDE), cross_attention=other)

    encoder = Encoder(1, lambda rngs: TransformerBlock(8, 2, rngs=rngs, **WIDE), rngs=rngs)
    text = TextEncoder(11, encoder, context=6, rngs=rngs, **WIDE)
    decoder = LanguageModel(context=9, stack=Decoder(1, block, rngs=rngs), rngs=rngs, **SIZES)
    return EncoderDecoder(text, decoder)


@pytest.mark.slow
def test_encoder_decoder_reads_its_inputs_once():
    module = shuffled(lambda: encoder_decoder(nnx.Rngs(0)))
    inputs, seen = jnp.array([[7, 8, 9], [5, 4, 0]]), jnp.array([[True] * 3, [True, True, False]])
    prompts = jnp.array([[1, 2], [1, 3]], jnp.int32)
    cache = run(lambda m: m.init_cache(2, 9, inputs, valid=seen), module)
    got = run(generate, module, prompts, cache=cache, static=dict(steps=4))
    written = jnp.concatenate([prompts, got.tokens], axis=1)
    logits = run(each, module, [inputs[:1], inputs[1:, :2]], [written[:1], written[1:]])
    for b in range(2):
        np.testing.assert_array_equal(logits[b][0, 1:-1].argmax(-1), got.tokens[b])


def each(module, inputs, tokens):
    return [module(x, t) for x, t in zip(inputs, tokens, strict=True)]


def test_one_program_whatever_the_steps():
    traced = []

    class Counted(LanguageModel):
        def extend(self, tokens, cache, **options):
            traced.append(tokens.shape)
            return super().extend(tokens, cache, **options)

    sizes = dict(vocabulary=11, width=4, layers=1, num_heads=1, context=40)
    module = shuffled(lambda: Counted(rngs=nnx.Rngs(0), **sizes))
    generate(module, PROMPTS, steps=30)
    assert traced.count((2, 3)) == 1 and 1 <= traced.count((2, 1)) <= 2  # the prompt's last one too
    traced.clear()
    generate(module, PROMPTS + 1, steps=30)
    assert traced == []
    assert len(list(stream(module, PROMPTS, steps=9))) == 9
    assert traced.count((2, 1)) == 1


def test_a_prompt_gets_logits_for_its_last_token_only():
    """A long prompt and a large vocabulary: T·V numbers would be most of the memory."""
    sizes = dict(vocabulary=3000, width=4, layers=1, num_heads=1, context=600)
    module = shuffled(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))
    graph, state = nnx.split(module)

    def temporary(function):
        tokens = jax.ShapeDtypeStruct((1, 500), jnp.int32)
        compiled = calls.jit(lambda state, tokens: function(nnx.merge(graph, state), tokens))
        return compiled.lower(state, tokens).compile().memory_analysis().temp_size_in_bytes

    logits = 500 * 3000 * 4
    assert temporary(lambda m, tokens: generate(m, tokens, steps=3).tokens) < logits / 2
    assert temporary(lambda m, tokens: m(tokens).argmax(-1)) > logits  # which this one makes


def test_stream_says_the_same_and_ends_with_all_examples():
    sizes = dict(vocabulary=11, width=4, layers=1, num_heads=1, context=12)
    module = shuffled(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))
    options = dict(steps=5, valid=LEFT, temperature=0.9, top_k=7, top_p=0.9)
    got = jnp.stack(list(stream(module, PROMPTS, **options, key=jax.random.key(3))), axis=-1)
    whole = functools.partial(run, generate, module, PROMPTS, valid=LEFT)
    options.pop("valid")
    want = whole(key=jax.random.key(3), static=options).tokens
    np.testing.assert_array_equal(got, want)
    assert (got != whole(key=jax.random.key(4), static=options).tokens).any()
    stop = int(next(stream(module, PROMPTS[0], steps=1)))
    assert [int(token) for token in stream(module, PROMPTS[0], steps=5, stop=stop)] == [stop]


@pytest.mark.slow
def test_stop_ends_an_example_and_not_the_others():
    module = model()
    free = np.asarray(continued(module, PROMPTS, LEFT, steps=6).tokens)
    stop = int(free[0, 1])
    got = continued(module, PROMPTS, LEFT, steps=6, stop=stop)
    counts = []
    for b in range(2):
        ends = np.flatnonzero(free[b] == stop)
        counts.append(ends[0] + 1 if len(ends) else 6)
        np.testing.assert_array_equal(got.tokens[b, : counts[b]], free[b, : counts[b]])
        assert (got.tokens[b, counts[b] :] == stop).all()
    np.testing.assert_array_equal(got.counts, counts)
    # what comes behind the end takes no place: neither does the stop token itself
    held = [4 + counts[0] - 1, 2 + counts[1] - 1]
    np.testing.assert_array_equal(got.cache[0].own.length, held)


@pytest.mark.slow
def test_goes_on_from_its_cache():
    def both(module):
        whole = generate(module, PROMPTS, steps=6)
        first = generate(module, PROMPTS, steps=4, cache=module.init_cache(2, 9))
        second = generate(module, first.tokens[:, -1:], steps=2, cache=first.cache)
        return whole.tokens, jnp.concatenate([first.tokens, second.tokens], axis=1)

    np.testing.assert_array_equal(*run(both, model()))


def test_beams_as_many_as_there_are_beginnings_find_the_best():
    sizes = dict(vocabulary=4, width=8, layers=1, num_heads=2, context=8, **WIDE)
    module = shuffled(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))
    prompts, valid = jnp.array([[1, 2, 3], [0, 3, 0]]), jnp.array([[True] * 3, [False, True, True]])
    static = dict(steps=3, beams=16)
    found = run(generate_beams, module, prompts, valid=valid, static=static)
    for b, prompt in enumerate(([1, 2, 3], [3, 0])):
        every = [[*prompt, *rest] for rest in itertools.product(range(4), repeat=3)]
        padded = [row + [0] * (6 - len(row)) for row in every]
        logits = run(called, module, jnp.array(padded))
        logs = np.asarray(jax.nn.log_softmax(logits, axis=-1))
        first = len(prompt)
        totals = [
            sum(logs[n, i - 1, row[i]] for i in range(first, first + 3))
            for n, row in enumerate(every)
        ]
        best = np.argsort(totals)[::-1][:4]
        np.testing.assert_array_equal(found.tokens[b, :4], [every[n][first:] for n in best])
        np.testing.assert_allclose(found.log_probability[b, :4], np.sort(totals)[::-1][:4], 1e-10)


@pytest.mark.slow
def test_greedy_is_a_beam_of_one():
    module = model("rotary")
    static = dict(steps=5, beams=1)
    beams = run(generate_beams, module, PROMPTS, valid=LEFT, static=static)
    greedy = continued(module, PROMPTS, LEFT, steps=5)
    np.testing.assert_array_equal(beams.tokens[:, 0], greedy.tokens)


def test_a_scanned_stack_writes_the_same():
    """With padding, from a cache that goes on, and in a beam that chooses among examples."""
    plain = shuffled(lambda: scanned_model(nnx.Rngs(0), scan=False))
    scanned = shuffled(lambda: scanned_model(nnx.Rngs(0)))
    nnx.update(scanned.embed, nnx.state(plain.embed, nnx.Param))
    scanned.head[...] = plain.head[...]
    stacked(plain.stack, scanned.stack)

    def everything(module):
        first = generate(module, PROMPTS, steps=3, valid=LEFT, cache=module.init_cache(2, 10))
        second = generate(module, first.tokens[:, -1:], steps=3, cache=first.cache)
        return first.tokens, second.tokens, generate_beams(module, PROMPTS, steps=4, beams=3)

    got, want = run(everything, scanned), run(everything, plain)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), got, want)


class Constant(nnx.Module):
    """Whatever it reads, the next token is 280."""

    def init_cache(self, batch, length):
        return caches.init(batch, length, 1, 1)

    def extend(self, tokens, cache, valid=None):
        return jnp.broadcast_to(jax.nn.one_hot(280, 300), (*tokens.shape, 300)), cache


def test_tokens_are_int32_whatever_the_prompt():
    """A vocabulary may be larger than the dtype that a prompt fits into."""
    prompt = jnp.array([[1, 2]], jnp.uint8)
    step = lambda state, tokens: (state, jax.nn.one_hot(tokens * 0 + 280, 300))
    options = dict(end=299, length=2)
    found = (
        generate(Constant(), prompt, steps=2).tokens[0],
        generate_beams(Constant(), prompt, steps=2, beams=1).tokens[0, 0],
        jnp.concatenate(list(stream(Constant(), prompt, steps=2))),
        greedy_search(step, (), prompt[0, :1], **options)[0],
        beam_search(step, (), prompt[0, :1], beams=1, **options).tokens[0, 0],
    )
    for tokens in found:
        assert tokens.dtype == jnp.int32
        np.testing.assert_array_equal(tokens, [280, 280])


def test_top_k_and_top_p_keep_what_they_say():
    logits = normal(0, 5, 9)
    order = np.sort(np.asarray(logits), axis=-1)[:, ::-1]
    kept = np.isfinite(keep_top_k(logits, 3))
    np.testing.assert_array_equal(kept, logits >= order[:, 2:3])
    assert keep_top_k(logits, 9) is logits
    shares = np.exp(order) / np.exp(order).sum(-1, keepdims=True)
    for b, row in enumerate(np.isfinite(keep_top_p(logits, 0.6))):
        count = int(np.searchsorted(np.cumsum(shares[b]), 0.6)) + 1
        np.testing.assert_array_equal(row, logits[b] >= order[b, count - 1])
    assert np.isfinite(keep_top_p(logits, 1e-9)).sum() == 5


def test_samples_have_the_distribution():
    logits = jnp.array([0.0, 1.0, 2.0, -1.0])
    many = jnp.broadcast_to(logits, (20000, 4))
    drawn = sample(jax.random.key(0), many, temperature=0.5, top_k=3)
    got = np.bincount(drawn, minlength=4) / 20000
    weights = np.exp(np.array([0.0, 1.0, 2.0, -np.inf]) / 0.5)
    want = weights / weights.sum()
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / 20000)).all()
    np.testing.assert_array_equal(sample(None, many[:3], temperature=0), [2, 2, 2])


@pytest.mark.parametrize(
    ("options", "error_type", "message"),
    [
        (dict(steps=0), ValueError, "steps must be at least 1"),
        (dict(temperature=-1.0), ValueError, "temperature must be at least 0"),
        (dict(temperature=float("nan")), ValueError, "temperature must be at least 0 .* got nan"),
        (dict(temperature=0.5), ValueError, "draws tokens and needs key="),
        (dict(top_p=0.0), ValueError, "top_p must be above 0"),
        (dict(top_k=0), ValueError, "top_k must be at least 1"),
        (dict(top_p="a"), TypeError, "top_p must be a Python number .* got 'a'"),
        (dict(key=0), TypeError, r"key must be a key of jax.random.key\(seed\), got 0"),
        (dict(key=jnp.zeros(2)), TypeError, r"key of jax.random.key\(seed\), got float"),
        (dict(key=jax.random.split(jax.random.key(0), 3)), ValueError, r"one key, got shape \[3\]"),
        *(
            (dict(stop=stop), TypeError, "stop must be one integer or None .*; give the number")
            for stop in ([3, 4], 3.5, ".")
        ),
        (dict(steps=20), ValueError, "T ≤ context = 10, got length = 23"),
        (dict(tokens=jnp.zeros((2, 0), int)), ValueError, "with T ≥ 1"),
        (dict(tokens=jnp.zeros((2, 3))), TypeError, "tokens must be an integer array"),
        (dict(valid=jnp.ones((2, 3), bool)), ValueError, r"valid must be \[T\] or \[\*B, T\]"),
    ],
)
def test_bad_input(options, error_type, message):
    given = dict(tokens=PROMPTS, steps=3) | options
    with pytest.raises(error_type, match=message):
        generate(model(), **given)


@pytest.mark.parametrize("penalty", [float("nan"), "a"])
def test_a_length_penalty_is_a_finite_number(penalty):
    step = lambda state, tokens: (state, jnp.zeros((*tokens.shape, 4)))
    options = dict(beams=2, length_penalty=penalty)
    with pytest.raises((TypeError, ValueError), match="length_penalty must be"):
        beam_search(step, (), PROMPTS[0, 0], end=3, length=2, **options)
    with pytest.raises((TypeError, ValueError), match="length_penalty must be"):
        generate_beams(Constant(), PROMPTS, steps=2, **options)


@pytest.mark.parametrize("valid", [jnp.zeros(4, bool), np.arange(4) < np.array([[4], [0]])])
def test_a_prompt_of_nothing_but_padding_has_no_next_token(valid):
    beams = functools.partial(generate_beams, beams=2)
    for function in (generate, beams, stream):
        with pytest.raises(ValueError, match="valid must be True for a token of each prompt"):
            function(Constant(), PROMPTS, steps=2, valid=valid)


def test_a_stop_token_may_be_an_array_of_one_number():
    for stop in (280, np.int64(280), jnp.array(280)):
        assert generate(Constant(), PROMPTS, steps=3, stop=stop).counts.tolist() == [1, 1]
        assert len(list(stream(Constant(), PROMPTS, steps=3, stop=stop))) == 1
        found = generate_beams(Constant(), PROMPTS, steps=3, beams=1, stop=stop)
        np.testing.assert_array_equal(found.tokens, jnp.full((2, 1, 3), 280))


def test_what_is_known_is_known_inside_of_jit_too():
    """Padding and a cache that the compiled function closes over."""
    module = model()
    for cache in (None, module.init_cache(2, 7)):
        got = run(
            lambda m, cache=cache: generate(m, PROMPTS, steps=4, valid=LEFT, cache=cache), module
        )
        np.testing.assert_array_equal(got.tokens, continued(module, PROMPTS, LEFT, steps=4).tokens)


def test_a_cache_that_is_too_small_or_of_others():
    module = model()
    with pytest.raises(ValueError, match="holds C = 5 tokens, 0 of them taken, .* need 6 more"):
        generate(module, PROMPTS, steps=3, cache=module.init_cache(2, 5))
    with pytest.raises(ValueError, match=r"must share \*B"):
        generate(module, PROMPTS, steps=3, cache=module.init_cache(3, 9))
    with pytest.raises(ValueError, match="tuple of L = 2 caches"):
        generate(module, PROMPTS, steps=3, cache=module.init_cache(2, 9)[:1])
    scanned = shuffled(lambda: scanned_model(nnx.Rngs(0)))
    with pytest.raises(ValueError, match="holds C = 5 tokens, 0 of them taken, .* need 6 more"):
        generate(scanned, PROMPTS, steps=3, cache=scanned.init_cache(2, 5))
