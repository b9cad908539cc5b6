"""Each mask against its predicate in plain Python, pair by pair; composition, checks, pytrees."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import jaxattn
from jaxattn.masks import (
    Block,
    Causal,
    Dense,
    Dilated,
    Global,
    Lengths,
    Mask,
    Predicate,
    Prefix,
    Segments,
    SlidingWindow,
    Strided,
)
from tests import calls, oracle
from tests.tolerances import assert_close

IDS = np.array([0, 0, 1, 1, 1, 0, 2, 2, 5])
TABLE = np.random.default_rng(0).random((9, 9)) < 0.5


def strided(i, j):
    return 0 <= i - j and (i - j < 3 or (i - j) % 3 == 0)


# The mask, and what it says about query position i and key position j below 9.
PREDICATES = {
    "causal": (Causal(), lambda i, j: j <= i),
    "window": (SlidingWindow(2, 1), lambda i, j: i - 2 <= j <= i + 1),
    "left window": (SlidingWindow(2, None), lambda i, j: i - 2 <= j),
    "right window": (SlidingWindow(None, 0), lambda i, j: j <= i),
    "no window": (SlidingWindow(None, None), lambda i, j: True),
    "diagonal": (SlidingWindow(0, 0), lambda i, j: i == j),
    "lengths": (Lengths(query=4, key=6), lambda i, j: i < 4 and j < 6),
    "key length": (Lengths(key=jnp.array(5)), lambda i, j: j < 5),
    "length 0": (Lengths(key=0), lambda i, j: False),
    "prefix": (Prefix(3), lambda i, j: j < 3),
    "segments": (Segments(jnp.asarray(IDS)), lambda i, j: IDS[i] == IDS[j]),
    "two tables": (
        Segments(jnp.asarray(IDS), jnp.asarray(IDS[::-1])),
        lambda i, j: IDS[i] == IDS[::-1][j],
    ),
    "dense": (Dense(jnp.asarray(TABLE)), lambda i, j: TABLE[i, j]),
    "predicate": (Predicate(lambda q, k: (q * k) % 3 == 0), lambda i, j: i * j % 3 == 0),
    "block": (Block(4), lambda i, j: i // 4 == j // 4),
    "dilated": (Dilated(3), lambda i, j: (i - j) % 3 == 0),
    "strided": (Strided(3), strided),
    "global": (Global((1, 4)), lambda i, j: i in (1, 4) or j in (1, 4)),
}


def brute_force(predicate, rows, columns):
    return np.array([[bool(predicate(int(i), int(j))) for j in columns] for i in rows])


@pytest.mark.parametrize("name", PREDICATES)
def test_dense_is_the_predicate(name):
    mask, predicate = PREDICATES[name]
    np.testing.assert_array_equal(mask.dense(9), brute_force(predicate, range(9), range(9)))


@pytest.mark.parametrize("name", PREDICATES)
def test_called_at_any_positions(name):
    """Slices, permutations and repetitions are only other positions."""
    mask, predicate = PREDICATES[name]
    rows, columns = np.array([3, 8, 0, 3], np.int32), np.array([7, 2, 2, 0, 5], np.int32)
    got = mask(jnp.asarray(rows)[:, None], jnp.asarray(columns)[None])
    want = brute_force(predicate, rows, columns)
    np.testing.assert_array_equal(np.broadcast_to(got, want.shape), want)


@pytest.mark.parametrize("name", ["left window", "length 0", "two tables", "predicate", "strided"])
def test_in_the_primitive(name, implementation):
    mask, predicate = PREDICATES[name]
    operands = calls.heads(batch=(), queries=9, keys=9, count=1, key_heads=1)
    out = calls.attention(**operands, mask=mask, implementation=implementation)
    assert_close(out, oracle.attention(**operands, mask=predicate).out)


pairs = st.tuples(*[st.sampled_from(sorted(PREDICATES))] * 3)


@given(names=pairs, shape=st.tuples(*[st.integers(0, 9)] * 2))
def test_composition(names, shape):
    """`a & (b | ~c)`, at any lengths, is what the three predicates say."""
    (a, is_a), (b, is_b), (c, is_c) = (PREDICATES[name] for name in names)
    mask = a & (b | ~c)
    predicate = lambda i, j: is_a(i, j) and (is_b(i, j) or not is_c(i, j))
    rows, columns = (np.arange(size, dtype=np.int32) for size in shape)
    got = mask(jnp.asarray(rows)[:, None], jnp.asarray(columns)[None])
    want = brute_force(predicate, rows, columns).reshape(shape)
    np.testing.assert_array_equal(np.broadcast_to(got, shape), want)


def test_de_morgan():
    a, b = Causal(), Dense(jnp.asarray(TABLE))
    np.testing.assert_array_equal((~(a & b)).dense(9), (~a | ~b).dense(9))
    np.testing.assert_array_equal((~~a).dense(9), a.dense(9))


@pytest.mark.parametrize(
    "other", [np.ones((3, 3), bool), 1, None, max], ids=["array", "number", "None", "function"]
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_composes_with_masks_only(other, side):
    with pytest.raises(TypeError, match=r"composes with masks.*Dense\(array\).*Predicate"):
        _ = other & Causal() if side == "left" else Causal() | other


# --- alignment ---------------------------------------------------------------------------------

ORDER = [Causal, functools.partial(SlidingWindow, 1, 1), functools.partial(Strided, 2)]


@pytest.mark.parametrize("mask", ORDER)
def test_alignment(mask):
    full = np.asarray(mask().dense(7))
    np.testing.assert_array_equal(mask(align="start").dense(3, 7), full[:3])
    np.testing.assert_array_equal(mask(align="end").dense(3, 7), full[4:])
    np.testing.assert_array_equal(mask(align="end").dense(7, 3)[:4], np.zeros((4, 3), bool))
    with pytest.raises(ValueError, match="T = 3 queries against S = 7 keys"):
        mask().dense(3, 7)


def test_alignment_inside_a_composition_counts_for_all():
    mask = Lengths(key=5) & (Causal("end") | SlidingWindow(0, 1))
    want = lambda i, j: j < 5 and j <= i + 4 + 1
    np.testing.assert_array_equal(mask.dense(3, 7), brute_force(want, range(3), range(7)))


def test_two_alignments_are_an_error():
    with pytest.raises(ValueError, match="must share one alignment"):
        (Causal("end") & SlidingWindow(1, 1, "start")).dense(3, 7)


@pytest.mark.parametrize("align", ["left", "END", 1, False])
def test_unknown_alignment(align):
    for mask in (Causal, functools.partial(SlidingWindow, 1, 1)):
        with pytest.raises(ValueError, match='align must be "start", "end" or None'):
            mask(align=align)


def test_align_beside_positions_is_an_error(implementation):
    with pytest.raises(ValueError, match="leave align out of the mask"):
        jaxattn.attention(
            **calls.heads(),
            mask=Causal("end"),
            query_positions=jnp.arange(5),
            implementation=implementation,
        )


# --- pytrees: arrays are leaves, the rest is compiled in ---------------------------------------


def test_what_is_static_and_what_is_a_leaf():
    assert jax.tree.leaves(Causal() & SlidingWindow(1, 2)) == []
    assert jax.tree.leaves(Lengths(query=2, key=3)) == [2, 3]
    ids = jnp.arange(3)
    mask = ~(Segments(ids) | Dense(jnp.asarray(TABLE))) & Causal()
    assert [x.shape for x in jax.tree.leaves(mask)] == [(3,), (9, 9)]
    held = Predicate(jax.tree_util.Partial(lambda n, q, k: k < n, jnp.array(4)))
    assert len(jax.tree.leaves(held)) == 1
    assert jax.tree.leaves(Predicate(lambda q, k: q == k)) == []


def test_through_tree_map():
    mask = Segments(jnp.asarray(IDS)) & Causal()
    same = jax.tree.map(lambda x: x, mask)
    np.testing.assert_array_equal(same.dense(9), mask.dense(9))


def test_as_jit_arguments_compiled_once():
    traces = []

    @calls.jit
    def dense(mask):
        traces.append(1)
        return mask.dense(9)

    for length in (3, 5):
        got = dense(Causal() & Lengths(key=jnp.array(length)))
        want = brute_force(lambda i, j: j <= i and j < length, range(9), range(9))  # noqa: B023
        np.testing.assert_array_equal(got, want)
    assert len(traces) == 1
    dense(SlidingWindow(1, 1))
    dense(SlidingWindow(1, 2))
    assert len(traces) == 3


def test_vmap_over_leaves_is_the_batch_axis(implementation):
    operands, lengths = calls.heads(batch=(3,)), jnp.array([1, 4, 7])
    together = calls.attention(**operands, mask=Lengths(key=lengths), implementation=implementation)

    def one(operands, mask):
        return jaxattn.attention(**operands, mask=mask, implementation=implementation)

    each = calls.jit(jax.vmap(one))(operands, Lengths(key=lengths))
    assert_close(each, together)


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (Lengths(key=np.array([2, 5])), np.arange(7) < np.array([2, 5])[:, None, None, None]),
        (Segments(IDS[None, :7]), (IDS[:5, None] == IDS[:7])[None, None]),
        (Dense(np.ones((2, 4, 5, 7), bool) & TABLE[:5, :7]), TABLE[:5, :7]),
        (Prefix(np.array([0, 3])), np.arange(7) < np.array([0, 3])[:, None, None, None]),
    ],
    ids=["lengths", "segments", "dense", "prefix"],
)
def test_arrays_of_batch_and_heads(mask, allowed, implementation):
    operands = calls.heads()
    out = calls.attention(**operands, mask=mask, implementation=implementation)
    assert_close(out, oracle.attention(**operands, mask=allowed).out)


@pytest.mark.parametrize("shape", [(2, 4, 5, 7), (1, 4, 5, 7), (2, 2, 5, 7), (2, 1, 5, 7)], ids=str)
def test_a_table_with_a_head_axis(shape, implementation):
    """A `Dense` means what its array does: N heads, 1, or K that serve their groups."""
    operands, table = calls.heads(), np.random.default_rng(1).random(shape) < 0.6
    out = calls.attention(**operands, mask=Dense(table), implementation=implementation)
    assert_close(out, oracle.attention(**operands, mask=table).out)


# --- repr --------------------------------------------------------------------------------------


def causal(query, key):
    return key <= query


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (Causal(), "Causal()"),
        (Causal("end"), "Causal(align='end')"),
        (SlidingWindow(3, None), "SlidingWindow(left=3, right=None)"),
        (Lengths(key=4), "Lengths(key=4)"),
        (Segments(np.zeros(5, np.int32)), "Segments(query_ids=int32[5])"),
        (Dense(np.ones((2, 3), bool)), "Dense(array=bool[2,3])"),
        (Predicate(causal), "Predicate(causal)"),
        (Causal() & ~Lengths(key=2), "Causal() & ~Lengths(key=2)"),
        ((Causal() | Prefix(2)) & Block(3), "(Causal() | Prefix(length=2)) & Block(size=3)"),
        (~(Causal() & Block(3)), "~(Causal() & Block(size=3))"),
    ],
    ids=str,
)
def test_repr(mask, text):
    assert repr(mask) == text


def test_a_mask_of_ones_own_must_say_what_it_allows():
    class Mine(Mask):
        pass

    with pytest.raises(NotImplementedError, match="Mine must define __call__"):
        Mine().dense(3)
