"""What masks say of tiles: never wrong, and as sharp as it must be for the cost to be right."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from jaxattn import attention
from jaxattn.masks import (
    And,
    BigBird,
    Block,
    Causal,
    Dense,
    Dilated,
    Fixed,
    Global,
    Lengths,
    Neighbourhood,
    Predicate,
    Prefix,
    Segments,
    SlidingWindow,
    Strided,
)
from jaxattn.masks._base import mask_class
from jaxattn.masks._tiles import LARGEST, Blocks, occupied
from tests.jaxprs import equations

TOKENS, TABLE, BATCH = 12, 20, 2

small = st.integers(1, 9)
border = st.none() | st.integers(0, 12)
seeds = st.integers(0, 2**16)


def random_ids(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).integers(0, 4, shape), jnp.int32)


static_masks = st.one_of(
    st.just(Causal()),
    st.builds(SlidingWindow, border, border),
    st.builds(Dilated, small),
    st.builds(Strided, small),
    st.builds(Fixed, st.integers(3, 9), st.integers(1, 3)),
    st.builds(Block, small),
    st.builds(Prefix, st.integers(0, 25)),
    st.builds(Global, st.lists(st.integers(0, 25), max_size=4).map(tuple)),
    st.builds(
        BigBird,
        size=st.integers(1, 5),
        blocks=st.integers(2, 7),
        window=st.sampled_from([1, 3]),
        random=st.integers(0, 2),
        global_blocks=st.sampled_from([(), (0,), (0, -1)]),
        seed=st.integers(0, 2**32 - 1),
    ),
    st.builds(
        Neighbourhood,
        st.integers(3, 6),
        st.integers(3, 6),
        st.sampled_from([1, 3, (1, 3), (3, 1)]),
    ),
)
array_masks = st.one_of(
    seeds.map(lambda seed: Lengths(random_ids(seed, BATCH) * 5, random_ids(seed + 1, BATCH) * 5)),
    seeds.map(lambda seed: Segments(random_ids(seed, TABLE))),
    seeds.map(lambda seed: Segments(jnp.sort(random_ids(seed, BATCH, TABLE)))),
    seeds.map(lambda seed: Segments(random_ids(seed, BATCH, 9), random_ids(seed, BATCH, 14))),
    seeds.map(lambda seed: Prefix(random_ids(seed, BATCH) * 4)),
    seeds.map(lambda seed: Global(random_ids(seed, BATCH, 3) * 4 - 1)),
    seeds.map(lambda seed: Dense(random_ids(seed, BATCH, 1, TABLE, TABLE) > 0)),
    st.just(Predicate(lambda query, key: (query * key) % 3 == 1)),
)


def composed(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
            inner.map(lambda mask: ~mask),
        ),
        max_leaves=3,
    )


@st.composite
def positions(draw):
    """Int32 `[BATCH, TOKENS]`: counted, slid, shuffled, or any, with gaps, also at the far end."""
    rng = np.random.default_rng(draw(seeds))
    shape = (BATCH, TOKENS)
    kind = draw(st.sampled_from(["counted", "slid", "shuffled", "any", "far"]))
    if kind in ("counted", "slid"):
        start = rng.integers(-6, 12, (BATCH, 1)) if kind == "slid" else 0
        x = np.maximum(np.broadcast_to(np.arange(TOKENS), shape) + start, -1)
    elif kind == "shuffled":
        x = np.array([rng.permutation(2 * TOKENS)[:TOKENS] for _ in range(BATCH)])
    else:
        x = rng.integers(-1, 30, shape)
        x = np.where((kind == "far") & (x >= 0), LARGEST - x, x)
    absent = rng.random(shape) < draw(st.sampled_from([0.0, 0.0, 0.3]))
    return np.where(absent, -1, x).astype(np.int32)


def in_blocks(x, size):
    return Blocks(x.reshape(*x.shape[:-1], -1, size))


def brute_force(mask, queries, keys):
    """Any and all of the pairs of each tile `[BATCH, nq, nk]`, and which pairs are of somebody."""
    rows, columns = (np.asarray(x.positions) for x in (queries, keys))
    q, k = (x.reshape(*x.shape[:-2], -1) for x in (rows, columns))
    pairs = np.asarray(mask(jnp.asarray(q)[:, None, :, None], jnp.asarray(k)[:, None, None, :]))
    there = (q >= 0)[:, None, :, None] & (k >= 0)[:, None, None, :]
    shape = (BATCH, *rows.shape[-2:], *columns.shape[-2:])
    full = (BATCH, 1, q.shape[-1], k.shape[-1])
    pairs, there = (np.broadcast_to(x, full).reshape(shape) for x in (pairs, there))
    return (pairs & there).any(axis=(2, 4)), (pairs | ~there).all(axis=(2, 4))


def assert_sound(mask, queries, keys):
    some, every = brute_force(mask, queries, keys)
    tiles = mask.tiles(queries, keys)
    possible, certain = (np.broadcast_to(np.asarray(x), some.shape) for x in tiles)
    assert not (some & ~possible).any(), f"{mask!r} calls a tile empty that is not"
    here = np.broadcast_to(occupied(queries, keys).possible, some.shape)
    assert not (certain & here & ~every).any(), f"{mask!r} calls a tile full that is not"
    return tiles


sizes = st.sampled_from([1, 2, 3, 4, 6, 12])


@settings(max_examples=100, deadline=None)
@given(composed(static_masks), positions(), positions(), sizes, sizes)
def test_static_masks_are_sound_and_stay_static(mask, q, k, rows, columns):
    tiles = assert_sound(mask, in_blocks(q, rows), in_blocks(k, columns))
    assert all(isinstance(x, np.ndarray) for x in tiles)


@settings(max_examples=30, deadline=None)
@given(composed(static_masks | array_masks), positions(), positions(), st.sampled_from([3, 4]))
def test_masks_with_arrays_are_sound(mask, q, k, size):
    assert_sound(mask, in_blocks(q, size), in_blocks(k, size))


@settings(max_examples=15, deadline=None)
@given(array_masks, positions(), positions())
def test_one_position_for_all_examples(mask, q, k):
    """Positions `[1, blocks, size]` serve a batch of ids or lengths."""
    queries, keys = (in_blocks(np.broadcast_to(x[:1], x.shape), 4) for x in (q, k))
    shared = mask.tiles(*(Blocks(x.positions[:1]) for x in (queries, keys)))
    for one, other in zip(mask.tiles(queries, keys), shared, strict=True):
        shape = np.broadcast_shapes(one.shape, other.shape)
        np.testing.assert_array_equal(np.broadcast_to(one, shape), np.broadcast_to(other, shape))


@settings(max_examples=60, deadline=None)
@given(composed(static_masks | array_masks))
def test_a_reflexive_mask_lets_every_token_attend_to_itself(mask):
    """Else it may be wrong: what takes no part would not be kept out of mixed tiles."""
    try:
        mask.check((BATCH,), TOKENS, TOKENS)
    except ValueError:
        reject()  # such a call is refused
    diagonal = np.diagonal(mask.dense(TOKENS), axis1=-2, axis2=-1)
    assert diagonal.all() or not mask.reflexive


def test_which_masks_are_reflexive():
    ids = jnp.zeros(4, jnp.int32)
    lengths = Lengths(key=jnp.array(3))
    known = [
        Causal(),
        SlidingWindow(2, 0),
        Segments(ids) & Causal(),
        lengths | Causal(),
        Dilated(2),
    ]
    other = [Segments(ids, ids), lengths, lengths & Causal(), ~Causal(), Predicate(jnp.equal)]
    assert all(mask.reflexive for mask in known) and not any(mask.reflexive for mask in other)


@mask_class(static=("align",))
class Before(Causal):
    """Those before it alone: a user's mask on top of one of ours."""

    def __call__(self, query_positions, key_positions):
        return Causal()(query_positions, key_positions) & (query_positions != key_positions)


@mask_class(leaves=("left", "right"))
class Later(And):
    """A composition that means something else."""

    def __call__(self, query_positions, key_positions):
        return ~super().__call__(query_positions, key_positions)


class Unregistered(Causal):
    """A mask that JAX takes for a leaf."""

    __call__ = Before.__call__


REDEFINED = {
    "registered": Before(),
    "composition": Later(Causal(), Block(3)),
    "unregistered": Unregistered(),
    "inside": ~Unregistered() & Block(5) | Before(),
}


@pytest.mark.parametrize("mask", REDEFINED.values(), ids=REDEFINED)
def test_a_mask_that_redefines_who_attends_inherits_nothing_known(mask):
    positions = in_blocks(np.tile(np.arange(TOKENS, dtype=np.int32), (BATCH, 1)), 4)
    assert not mask.reflexive
    assert_sound(mask, positions, positions)
    query, key, value = jax.random.normal(jax.random.key(0), (3, 12, 2, 4))
    out, reference = (
        attention(query, key, value, mask=m, implementation=path)
        for m, path in ((mask, "blockwise"), (mask.dense(12), "dense"))
    )
    np.testing.assert_allclose(out, reference, atol=1e-6)


def test_ids_of_64_bits_are_not_cut():
    """Ids that differ by 2^32 are different segments."""
    mask = Segments(jnp.array([[0] * 4 + [2**32] * 4], jnp.int64))
    blocks = Blocks(np.arange(8, dtype=np.int32).reshape(1, 2, 4))
    np.testing.assert_array_equal(mask.tiles(blocks, blocks).possible[0], np.eye(2, dtype=bool))


# Sharpness: counted positions, T = S = 96, tiles of 8 × 8 (queries × keys) where not said.

SHARP = {
    "causal": (Causal(), 8),
    "window": (SlidingWindow(left=19, right=0), 8),
    "window both": (SlidingWindow(left=8, right=9), 8),
    "not a window": (~SlidingWindow(left=19, right=3), 8),
    "prefix": (Causal() | Prefix(20), 8),
    "lengths": (Lengths(query=90, key=41), 8),
    "segments": (Segments(jnp.array([[0] * 20 + [1] * 4 + [2] * 40 + [3] * 32])), 8),
    "packed causal": (Causal() & Segments(jnp.array([[0] * 40 + [1] * 56])), 8),
    "block": (Block(16), 8),
    "block across": (Block(20), 8),
    "dilated": (Dilated(16), 4),
    "dilated window": (SlidingWindow(left=32, right=32) & Dilated(16), 4),
    "strided": (Strided(24), 8),
    "fixed": (Fixed(24, summary=2), 8),
    "fixed blocks": (Fixed(32, summary=8), 8),
    "global": (SlidingWindow(left=8, right=8) | Global((0, 50)), 8),
    "global block": (SlidingWindow(left=8, right=8) | Global(tuple(range(8))), 8),
    "bigbird": (BigBird(size=8, blocks=12, random=2, seed=3), 8),
    "bigbird halves": (BigBird(size=16, blocks=6, random=1, seed=3), 8),
    "bigbird doubles": (BigBird(size=4, blocks=24, random=1, global_blocks=(), seed=5), 8),
    "neighbourhood": (Neighbourhood(12, 8, 3), 8),
    "neighbourhood rows": (Neighbourhood(6, 16, (3, 5)), 32),
    "neighbourhood halves": (Neighbourhood(6, 16, (3, 5)), 8),
}


@pytest.mark.parametrize("mask, size", SHARP.values(), ids=SHARP)
def test_tiles_are_exact_for_counted_positions(mask, size):
    counted = np.broadcast_to(np.arange(96, dtype=np.int32), (BATCH, 96))
    queries = keys = in_blocks(counted, size)
    some, every = brute_force(mask, queries, keys)
    possible, certain = (np.broadcast_to(x, some.shape) for x in mask.tiles(queries, keys))
    np.testing.assert_array_equal(possible, some)
    # A tile of several random blocks may happen to be full; it is called mixed.
    if not isinstance(mask, BigBird) or mask.size >= size:
        np.testing.assert_array_equal(certain, every)


@pytest.mark.parametrize("length", [1024, 4096, 16384])
def test_a_window_costs_what_it_sees(length):
    """w = 256 keys, tiles of 128: three tiles a query block, however long the sequence is."""
    tiles = default_tiles(SlidingWindow(left=255, right=0), length, 128)
    blocks = length // 128
    assert tiles.possible.sum() == 3 * blocks - 3
    assert (tiles.possible & tiles.certain).sum() == blocks - 1


GROWTH = {
    "longformer": (lambda n: SlidingWindow(left=31, right=31) | Global((0,)), 4.1),
    "bigbird": (lambda n: BigBird(size=8, blocks=n // 8, random=1), 4.1),
    "strided": (lambda n: Strided(math.isqrt(n)), 8.2),
    "fixed": (lambda n: Fixed(math.isqrt(n)), 8.2),
}


@pytest.mark.parametrize("name", GROWTH)
def test_sparse_masks_cost_their_active_tiles(name):
    """Four times the tokens: four times the tiles, or eight where the stride is √T, not sixteen."""
    make, most = GROWTH[name]
    short, long = (default_tiles(make(n), n, 8).possible.sum() for n in (1024, 4096))
    assert 0.9 * round(most) < long / short <= most
    short, long = (default_tiles(Causal(), n, 8).possible.sum() for n in (1024, 4096))
    assert long / short > 15


def test_causal_costs_half():
    tiles = default_tiles(Causal(), 4096, 128)
    assert tiles.possible.sum() == 32 * 33 // 2
    assert (tiles.possible & tiles.certain).sum() == 32 * 31 // 2


def test_bigbird_costs_its_blocks():
    """Window 3, 2 global and 3 random blocks: at most 8 a row, beside 2 global rows."""
    tiles = default_tiles(BigBird(size=64, blocks=256), 256 * 64, 64)
    assert (tiles.possible == tiles.certain).all()
    assert tiles.possible.sum(axis=-1).max() == 256
    # Rows next to a global block have it in their window as well.
    assert sorted(set(tiles.possible[0].sum(axis=-1))) == [7, 8, 256]


def default_tiles(mask, length, size):
    blocks = in_blocks(np.arange(length, dtype=np.int32)[None], size)
    return mask.tiles(blocks, blocks)


TRACED = [mask for mask, _ in SHARP.values() if not isinstance(mask, Neighbourhood)]
TRACED += [Neighbourhood(64, 64, 7), Global(jnp.arange(5)), Dense(jnp.ones((1, 1), bool))]


STATIC = [Causal() & ~SlidingWindow(9, 2), Dilated(3), Strided(4), Block(5), Global((3, 9))]
STATIC += [BigBird(size=4, blocks=6, random=1), Neighbourhood(4, 6, 3)]


@pytest.mark.parametrize("mask", STATIC, ids=repr)
def test_traced_positions_give_the_same_tiles(mask):
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-1, 26, (BATCH, 6, 4)).astype(np.int32) for _ in range(2))
    want = mask.tiles(Blocks(q), Blocks(k))
    got = jax.jit(lambda q, k: mask.tiles(Blocks(q), Blocks(k)))(q, k)
    here = occupied(Blocks(q), Blocks(k)).possible
    for one, other in zip(want, got, strict=True):
        np.testing.assert_array_equal(here & one, here & np.asarray(other))


@pytest.mark.parametrize("mask", TRACED, ids=repr)
def test_no_array_of_all_pairs(mask):
    """Statistics of T = S = 4096 in 16 × 16 tiles: nothing comes near 2^24 elements."""
    shape = (1, 16, 256)

    def tiles(mask, queries, keys):
        return mask.tiles(Blocks(queries), Blocks(keys))

    example = jnp.zeros(shape, jnp.int32)
    jaxpr = jax.make_jaxpr(tiles)(mask, example, example)
    largest = max(var.aval.size for equation in equations(jaxpr) for var in equation.outvars)
    assert largest <= 16 * 4096
    pairs = jax.make_jaxpr(mask)(example.reshape(1, 1, -1, 1), example.reshape(1, 1, 1, -1))
    assert max(var.aval.size for eq in equations(pairs) for var in eq.outvars) >= 4096**2
