"""Prefix, Dilated, Strided, Global, BigBird, Block, Neighbourhood, each by its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import (
    BigBird,
    Block,
    Causal,
    Dense,
    Dilated,
    Fixed,
    Global,
    Lengths,
    Neighbourhood,
    Prefix,
    Segments,
    SlidingWindow,
    Strided,
)

TOKENS = 24
BIGBIRD = BigBird(size=2, blocks=12, window=3, random=2, global_blocks=(0, -1), seed=7)


def in_window(query, key, size, window):
    """Whether a key is one of the `window` nearest places, by sorting (borders included)."""
    centre = min(max(query, window // 2), size - 1 - window // 2)
    return abs(key - centre) <= window // 2


def neighbours(query, key):
    (qy, qx), (ky, kx) = divmod(query, 6), divmod(key, 6)
    return in_window(qy, ky, 4, 3) and in_window(qx, kx, 6, 5)


def bigbird(query, key):
    a, b = query // 2, key // 2
    drawn = BIGBIRD.random_blocks()[a].tolist()
    return abs(a - b) <= 1 or a in (0, 11) or b in (0, 11) or b in drawn


DEFINITIONS = {
    Prefix(5): lambda query, key: key < 5,
    Causal() | Prefix(5): lambda query, key: key <= query or key < 5,
    Dilated(3): lambda query, key: (query - key) % 3 == 0,
    Strided(4): lambda query, key: key in {*range(query, query - 4, -1), *range(query, -1, -4)},
    Fixed(4): lambda query, key: key <= query and (query // 4 == key // 4 or key % 4 == 3),
    Fixed(5, summary=2): lambda query, key: (
        key <= query and (query // 5 == key // 5 or key % 5 in (3, 4))
    ),
    Global((0, 7)): lambda query, key: bool({query, key} & {0, 7}),
    Global(jnp.array([7, -1, 0])): lambda query, key: bool({query, key} & {0, 7}),
    Global(()): lambda query, key: False,
    Block(5): lambda query, key: query // 5 == key // 5,
    Neighbourhood(4, 6, (3, 5)): neighbours,
    BIGBIRD: bigbird,
}


@pytest.mark.parametrize("mask, definition", DEFINITIONS.items(), ids=map(repr, DEFINITIONS))
def test_mask_is_its_definition(mask, definition):
    want = [[definition(query, key) for key in range(TOKENS)] for query in range(TOKENS)]
    np.testing.assert_array_equal(mask.dense(TOKENS), want)


@pytest.mark.parametrize("mask", DEFINITIONS, ids=map(repr, DEFINITIONS))
def test_positions_of_any_rank_and_order(mask):
    """Far, shuffled and absent positions with batch axes give the entries of the whole."""
    rng = np.random.default_rng(0)
    q, k = (rng.permuted(np.tile(np.arange(TOKENS), (2, 1)), axis=1) for _ in range(2))
    q, k = (jnp.asarray(x, jnp.int32) for x in (q, k))
    whole = np.asarray(mask.dense(TOKENS))
    allowed = jax.jit(mask)(q[:, None, :, None], k[:, None, None, :])
    assert allowed.dtype == bool
    for example in range(2):
        want = whole[np.ix_(q[example], k[example])]
        np.testing.assert_array_equal(np.broadcast_to(allowed, (2, 1, 24, 24))[example, 0], want)


@pytest.mark.parametrize("mask", DEFINITIONS, ids=map(repr, DEFINITIONS))
def test_attention_takes_it_as_argument(mask):
    """A mask is a pytree: one compilation serves equal static parts, and the answer is Dense's."""
    query, key, value = np.random.default_rng(0).standard_normal((3, 1, TOKENS, 1, 4))
    got = attention(query, key, value, mask)
    want = attention(query, key, value, jnp.asarray(mask.dense(TOKENS)))
    np.testing.assert_allclose(got, want, atol=1e-14)


@jax.jit
def attention(query, key, value, mask):
    return jaxattn.attention(query, key, value, mask=mask)


def test_equal_static_parts_are_compiled_once():
    traces = []

    @jax.jit
    def count(mask):
        traces.append(mask)
        return mask.dense(4)

    for make in (lambda: Dilated(2), lambda: Global((1, 2)), lambda: Neighbourhood(2, 2, 1)):
        before = len(traces)
        count(make()), count(make())
        assert len(traces) == before + 1
    count(Dilated(3))
    assert len(traces) == 4
    assert hash(jax.tree.structure(BIGBIRD)) == hash(
        jax.tree.structure(BIGBIRD & Causal()).children()[0]
    )


def test_leaves_take_a_batch_axis():
    """vmap over lengths and tokens is their batch axis."""
    lengths, tokens = jnp.array([2, 5]), jnp.array([[0, -1], [3, 1]])
    for make, leaf in ((Prefix, lengths), (Global, tokens)):
        mapped = jax.vmap(lambda leaf, make=make: make(leaf).dense(6))(leaf)
        batched = make(leaf).dense(6)
        assert batched.shape == (2, 1, 6, 6)
        np.testing.assert_array_equal(mapped, batched[:, 0])


MADE = {
    "Prefix": lambda x: Prefix(x.sum(-1)),
    "Lengths": lambda x: Lengths(x.sum(-1), x[..., 0]),
    "Global": Global,
    "Segments": lambda x: Segments(jnp.tile(x, 2)),
    "Dense": lambda x: Dense((x[..., None, None, :] + x[..., None, :, None]) % 2 == 0),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("batch", [(2, 3), (1, 3), (2, 1)])
def test_one_example_of_the_batch(make, batch):
    """`example(i, *B)` is entry i of the flattened *B, also where an axis of 1 serves all."""
    mask = make(jnp.arange(2 * 3 * 4).reshape(2, 3, 4)[: batch[0], : batch[1]] % 7)
    whole = jnp.broadcast_to(mask.dense(4), (2, 3, 1, 4, 4))
    one = jax.jit(lambda index: (mask & Causal()).left.example(index, (2, 3)).dense(4))
    for index in range(6):
        want = whole.reshape(6, 4, 4)[index]
        np.testing.assert_array_equal(np.squeeze(one(index)), want)


def test_every_neighbourhood_has_all_its_keys():
    """At borders the window shifts: 3 · 5 keys for each of the 24 queries."""
    assert (Neighbourhood(4, 6, (3, 5)).dense(24).sum(axis=-1) == 15).all()
    assert (Neighbourhood(5, 5, 5).dense(25)).all()


def test_beyond_the_grid_and_the_blocks_is_nobody():
    far = jnp.arange(20, 30)
    for mask in (Neighbourhood(4, 5, 3), BigBird(size=5, blocks=4)):
        near = jnp.arange(20)
        assert not mask(far[:, None], near[None]).any()
        assert not mask(near[:, None], far[None]).any()


def test_random_blocks_are_drawn_as_documented():
    """Distinct, neither near nor global, spread evenly, and by another seed others."""
    mask = BigBird(size=1, blocks=64, window=5, random=4, global_blocks=(0, 9))
    drawn = mask.random_blocks()
    for block, row in enumerate(drawn.tolist()):
        assert len(set(row)) == 4
        assert not {0, 9} & set(row) and min(abs(block - other) for other in row) > 2
    counts = np.bincount(drawn.ravel(), minlength=64)
    assert counts[[0, 9]].tolist() == [0, 0] and counts.max() <= 14
    assert (drawn != BigBird(1, 64, 5, 4, (0, 9), seed=1).random_blocks()).mean() > 0.9
    np.testing.assert_array_equal(drawn, BigBird(3, 64, 5, 4, (0, 9)).random_blocks())


def test_the_first_draw_by_hand():
    """Block 0 of 8 with its neighbour 1 in the window: place hash mod 6 among 2, ..., 7."""

    def finaliser(x):
        x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
        x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
        return x ^ x >> 16

    for seed in range(5):
        mask = BigBird(size=1, blocks=8, random=1, global_blocks=(), seed=seed)
        want = 2 + finaliser(finaliser(finaliser(seed) ^ 0) ^ 0) % 6
        assert mask.random_blocks()[0, 0] == want


def test_fewer_random_blocks_where_fewer_are_left():
    drawn = BigBird(size=1, blocks=4, window=3, random=3, global_blocks=()).random_blocks()
    assert [sorted(row) for row in drawn.tolist()] == [
        [-1, 2, 3],
        [-1, -1, 3],
        [-1, -1, 0],
        [-1, 0, 1],
    ]


def test_alignment_is_asked_for():
    for mask in (Strided(2), Fixed(2), Dilated(2), Block(2), BigBird(1, 4)):
        with pytest.raises(ValueError, match='align="end"'):
            mask.dense(2, 4)
    np.testing.assert_array_equal(Strided(2, align="end").dense(2, 4), Strided(2).dense(4)[2:])


def test_reading():
    assert (
        repr(SlidingWindow(4, 0) | Global([0]))
        == "SlidingWindow(left=4, right=0) | Global(tokens=(0,))"
    )
    assert (
        repr(~(Strided(3) & Prefix(jnp.array([1, 2]))))
        == "~(Strided(stride=3) & Prefix(length=int64[2]))"
    )
    assert repr(BigBird(64, 8, random=2)) == "BigBird(size=64, blocks=8, random=2)"
    assert repr(Global(jnp.array([1]))) == "Global(tokens=int64[1])"
    assert repr(Neighbourhood(4, 6, (3, 5))) == "Neighbourhood(height=4, width=6, window=(3, 5))"


ERRORS = {
    "step": (lambda: Dilated(0), ValueError, "step must be at least 1"),
    "step type": (lambda: Dilated(1.5), TypeError, "step must be an integer"),
    "stride": (lambda: Strided(-1), ValueError, "stride must be at least 1"),
    "summary": (lambda: Fixed(4, summary=5), ValueError, "summary must be at least 1 and at most"),
    "size": (lambda: Block(0), ValueError, "size must be at least 1"),
    "tokens": (lambda: Global((-1,)), ValueError, "tokens must be positions"),
    "token": (lambda: Global(0), TypeError, "tuple of integers"),
    "token type": (lambda: Global((0.5,)), TypeError, "tokens must be an integer"),
    "blocks": (lambda: BigBird(4, 0), ValueError, "blocks must be at least 1"),
    "even": (lambda: BigBird(4, 4, window=2), ValueError, "window must be odd"),
    "global": (lambda: BigBird(4, 4, global_blocks=(4,)), ValueError, "global_blocks must lie"),
    "seed": (lambda: BigBird(4, 4, seed=-1), ValueError, "seed must lie between"),
    "align": (lambda: Block(2, align="left"), ValueError, "align must be"),
    "window": (lambda: Neighbourhood(4, 4, 5), ValueError, "at most height = 4"),
    "window even": (lambda: Neighbourhood(4, 4, 2), ValueError, "window must be odd"),
    "windows": (lambda: Neighbourhood(4, 4, (1, 1, 1)), ValueError, "window_y, window_x"),
    "border": (lambda: SlidingWindow(2**31, 0), ValueError, "below 2\\^31"),
}


@pytest.mark.parametrize("make, kind, words", ERRORS.values(), ids=ERRORS)
def test_bad_numbers(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


REFUSED = {
    "prefix": (Prefix(jnp.ones(2)), TypeError, "Prefix.length must hold integers"),
    "prefixes": (Prefix(jnp.array([1, 2, 3])), ValueError, "Prefix.length must be"),
    "tokens": (Global(jnp.ones(2)), TypeError, "Global.tokens must hold integers"),
    "tokens of 3": (Global(jnp.zeros((3, 1), int)), ValueError, "Global.tokens must be"),
    "grid": (Neighbourhood(2, 2, 1), ValueError, "has height · width = 4 positions"),
    "blocks": (BigBird(2, 2), ValueError, "blocks = 3"),
}


@pytest.mark.parametrize("mask, kind, words", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_at_the_door(mask, kind, words):
    x = jnp.ones((2, 5, 1, 2))
    with pytest.raises(kind, match=words):
        jaxattn.attention(x, x, x, mask=mask & Causal())
