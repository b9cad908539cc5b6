"""The tiled implementation against the dense one, which JAX differentiates itself.

Tiles are 4 x 3 in all tests (see conftest), so that 5 queries and 7 keys make ragged edges.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn import blockwise, plan
from jaxattn.dispatch import with_sink
from jaxattn.layout import arrange
from jaxattn.masks import Block, Causal, Dilated, Global, Segments, SlidingWindow
from jaxattn.tiles import FULL, MIXED, classify, position_blocks, visits
from tests import calls, features, jaxprs
from tests.tolerances import error

TOLERANCE = 1e-12

# Every feature, and pairs of those that meet in one line of the code.
QUICK = [("causal", "sink", "dropout"), ("score_mod", "lengths"), ("segments", "scale", "softcap")]
QUICK += [("table", "bias")]
THOROUGH = [(name,) for name in features.FEATURES] + [
    ("score_mod", "bias", "softcap", "predicate"),
    ("window", "dropout", "scale"),
    ("lengths", "segments", "causal", "sink"),
    ("bias", "dropout", "sink", "table"),
]


def loss_of(case, implementation, cotangents):
    """A number that depends on out and lse of every row, -inf left out."""

    def loss(operands):
        options = {name: x for name, x in {**operands, **case.options}.items() if name != "sink"}
        part = jaxattn.partial_attention(**options, implementation=implementation)
        if "sink" in operands:
            part = with_sink(part, operands["sink"])
        lse = jnp.where(part.lse == -jnp.inf, 0, part.lse)
        return jnp.sum(jnp.sin(part.out) * cotangents[0]) + jnp.sum(jnp.sin(lse) * cotangents[1])

    return loss


def derivatives(case, implementation):
    """Value, gradient, both mixed nestings, grad of grad, jvp of jvp, and a third order."""
    rng = np.random.default_rng(3)
    cotangents = rng.standard_normal((2, 5, 4, 6)), rng.standard_normal((2, 5, 4))
    operands = {name: jnp.asarray(x) for name, x in case.operands.items()}
    along = {name: jnp.asarray(x) for name, x in calls.like(case.operands).items()}
    loss = loss_of(case, implementation, cotangents)

    def slope(x):
        return jax.jvp(loss, (x,), (along,))[1]

    def inner(x):
        gradient = jax.grad(loss)(x)
        return sum(jnp.sum(gradient[name] * along[name]) for name in along)

    @calls.jit
    def everything(x):
        return {
            "value": loss(x),
            "gradient": jax.grad(loss)(x),
            "forward over reverse": jax.jvp(jax.grad(loss), (x,), (along,))[1],
            "reverse over forward": jax.grad(slope)(x),
            "reverse over reverse": jax.grad(inner)(x),
            "forward over forward": jax.jvp(slope, (x,), (along,))[1],
        }

    return everything(operands)


def compare(names):
    case = features.combined(names)
    want, got = derivatives(case, "dense"), derivatives(case, "blockwise")
    for mode in want:
        for path, x in jax.tree_util.tree_leaves_with_path(want[mode]):
            y = dict(jax.tree_util.tree_leaves_with_path(got[mode]))[path]
            assert error(y, x) <= TOLERANCE, (mode, path)


@pytest.mark.parametrize("names", QUICK, ids="+".join)
def test_every_derivative_is_that_of_the_definition(names):
    compare(names)


@pytest.mark.slow
@pytest.mark.parametrize("names", THOROUGH, ids="+".join)
def test_every_derivative_of_every_feature(names):
    compare(names)


def test_a_derivative_in_value_alone_costs_less():
    """One product more than the value's two, against four more for all three."""
    query, key, value = (jnp.asarray(x) for x in calls.heads().values())

    def dots(*moving):
        def move(*moved):
            arguments = dict(zip(("query", "key", "value"), (query, key, value), strict=True))
            arguments.update(zip(moving, moved, strict=True))
            return jaxattn.attention(**arguments, implementation="blockwise")

        at = tuple({"query": query, "key": key, "value": value}[name] for name in moving)
        program = jax.jit(lambda *x: jax.jvp(move, x, x)[1]).trace(*at).jaxpr
        return jaxprs.count(program, "dot_general")

    assert dots("value") < dots("query") < dots("query", "key", "value")


@pytest.mark.parametrize("looped", [False, True])
def test_the_result_does_not_depend_on_the_tiles(looped):
    operands = calls.heads()
    inputs = enter(**operands, mask=Causal("end"))
    want = jaxattn.partial_attention(**operands, mask=Causal("end"), implementation="dense")
    for rows, columns in ((1, 1), (2, 5), (5, 7), (3, 2)):
        leaves, structure = jax.tree.flatten(inputs)
        got = blockwise.attend(blockwise.Plan(rows, columns, columns, looped), structure, leaves)
        assert error(got.out, want.out) <= 1e-14
        assert error(got.shift + got.log_total, want.lse) <= 1e-14


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Block(3), Dilated(3)),
        (Causal() & Block(4), Causal() | Block(4)),
    ],
    ids=str,
)
def test_masks_of_like_fields_are_told_apart(first, second):
    """JAX calls trees equal whose classes differ: one mask's program must not serve another."""
    query, key, value = (jnp.asarray(x) for x in calls.heads(queries=7, keys=7).values())
    for mask in (first, second):
        got, want = (
            jaxattn.attention(query, key, value, mask=mask, implementation=name)
            for name in ("blockwise", "dense")
        )
        assert error(got, want) <= 1e-14


def enter(query, key, value, **options):
    """Inputs as the door makes them."""
    names = "mask bias scale softcap score_mod dropout_key query_positions key_positions precision"
    defaults = dict.fromkeys(names.split()) | {"dropout_rate": 0.0}
    return jaxattn._door.enter(query, key, value, **(defaults | options))


def visited(mask, size, block):
    """Static visits of a mask on T = S = size."""
    x = jnp.zeros((size, 1, 1))
    inputs = enter(x, x, x, mask=mask)
    blocks = position_blocks(None, size, 0, block, 0)
    return visits(classify(inputs, blocks, blocks), looped=True)


def test_empty_tiles_are_not_visited_and_full_ones_not_masked():
    found = visited(Causal(), 64, 8)
    assert isinstance(found.kind, np.ndarray)
    assert (found.kind == MIXED).sum() == 8 and (found.kind == FULL).sum() == 28
    window = [visited(SlidingWindow(15, 0), size, 8).block.size for size in (64, 128, 256)]
    assert window == [24, 48, 96]  # three visits a block: linear in T


@pytest.mark.parametrize(
    ("mask", "length", "heads", "want"),
    [
        (None, 4096, 1, (1024, 512, 1024)),
        (None, 4096, 16, (128, 512, 512)),  # 16 query heads read one key head
        (Causal(), 4096, 1, (1024, 512, 512)),
        (Causal(), 1024, 1, (512, 512, 512)),
        (SlidingWindow(255, 0), 8192, 1, (512, 256, 256)),
        (Segments(jnp.zeros(1024, int)), 1024, 1, (1024, 512, 512)),  # known when run
    ],
)
def test_tiles_are_as_small_as_the_mask_rewards(mask, length, heads, want, monkeypatch):
    monkeypatch.setattr(plan, "ROWS", plan.DEFAULT_ROWS)
    monkeypatch.setattr(plan, "COLUMNS", plan.DEFAULT_COLUMNS)
    query, key = jnp.zeros((length, heads, 1)), jnp.zeros((length, 1, 1))
    found = plan.default_plan(enter(query, key, key, mask=mask))
    assert (found.rows, found.columns, found.wide) == want


@pytest.mark.parametrize(
    ("mask", "few"),
    [
        (SlidingWindow(15, 0), [True]),
        (SlidingWindow(15, 0) | Global((0, 70)), [True, False]),  # two rows of tiles see all
        (Causal() & (SlidingWindow(15, 0) | Global((0,))), [True]),
        (SlidingWindow(3, 9) & Segments(jnp.arange(128) // 50), [True]),  # of those known when run
        (Segments(jnp.arange(128) // 50), [False]),
        (Dilated(64), [False]),
        (Causal(), [False]),
        (None, [False]),
    ],
    ids=str,
)
def test_a_step_takes_few_keys_where_it_visits_few(mask, few):
    """Otherwise every block of queries would copy all keys of its head: T² in time."""
    x = jnp.zeros((128, 1, 1))
    leaves, structure = jax.tree.flatten(enter(x, x, x, mask=mask))
    found = []

    def layout(leaves):
        layouts = arrange(blockwise.Plan(8, 8, 8, True), structure.unflatten(leaves))
        found.extend(layout.far is not None for layout in layouts)

    jax.eval_shape(layout, leaves)
    assert found == few


@pytest.mark.parametrize(
    "mask",
    [
        SlidingWindow(4, 1),
        SlidingWindow(4, 1) & Segments(jnp.arange(41, dtype=jnp.int32) // 9),
        SlidingWindow(2, 0) | Global((0, 1)),
        SlidingWindow(2, 0) | Global((0, 20)),
        SlidingWindow(2, 0) | Global((17,)) & Segments(jnp.arange(41, dtype=jnp.int32) // 20),
        SlidingWindow(2, 2) | Block(13) & Global((3,)),
        Causal() & (SlidingWindow(3, 0) | Global((0,))),
    ],
    ids=str,
)
def test_derivatives_under_a_window_among_many_tiles(mask):
    """Keys are cut to those that a step visits; the last blocks of queries visit fewer."""
    operands = calls.heads(queries=41, keys=41, batch=(2,))
    direction = jax.tree.map(jnp.cos, operands)

    def orders(implementation):
        def loss(operands):
            return jnp.sum(
                jaxattn.attention(**operands, mask=mask, implementation=implementation) ** 2
            )

        gradient = jax.grad(loss)
        return jax.jit(lambda x: jax.jvp(gradient, (x,), (direction,)))(operands)

    got, want = orders("blockwise"), orders("dense")
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11), got, want)


def test_what_is_static_in_a_mask_is_skipped_beside_what_is_not():
    """Packed segments, known when run, in a causal window of three tiles in a row of 16."""
    x = jnp.zeros((128, 1, 1))
    found = []
    for mask in (SlidingWindow(15, 0), SlidingWindow(15, 0) & Segments(jnp.arange(128) // 50)):
        inputs = enter(x, x, x, mask=mask)
        leaves, structure = jax.tree.flatten(inputs)

        def layout(leaves, structure=structure):
            (found,) = arrange(blockwise.Plan(8, 8, 8, True), structure.unflatten(leaves))
            return found.steps.block

        found.append(jax.eval_shape(layout, leaves).shape)
    assert found == [(16, 3), (16, 3)]


def test_nothing_of_the_size_of_all_pairs_is_made():
    """T·S = 96² beside blocks of 4 x 3; the dense path fails the same check."""
    x = jnp.zeros((96, 2, 5))

    def largest(implementation):
        def loss(q, k, v):
            options = {"mask": Causal(), "dropout_rate": 0.5, "dropout_key": jax.random.key(0)}
            return jaxattn.attention(q, k, v, **options, implementation=implementation).sum()

        second = jax.grad(lambda *a: jax.jvp(loss, a, a)[1], argnums=(0, 1, 2))
        program = jax.make_jaxpr(second)(x, x, x)
        return max(v.aval.size for e in jaxprs.equations(program) for v in e.outvars)

    assert largest("blockwise") < 96 * 96 < largest("dense")
