"""Masks, biases and functions of a user's own, on tiles: whatever they inherit, they are believed.

Tiles are 4 x 3 (see conftest). The definition, which sees every pair, says what is right.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn import blockwise
from jaxattn.biases import ALiBi, Bias
from jaxattn.masks import Causal, Global, Lengths, Predicate, Segments, SlidingWindow
from jaxattn.masks._base import mask_class
from jaxattn.plan import loopable
from tests import calls
from tests.test_masks_tiles import assert_sound, in_blocks
from tests.tolerances import error

TOLERANCE = 1e-13


@pytest.fixture(autouse=True)
def as_users_run():
    """Users' functions need not say how their axes line up."""
    with jax.numpy_rank_promotion("allow"):
        yield


def operands(**sizes):
    arrays = calls.heads(**{"queries": 9, "keys": 9, "size": 3, "value_size": 3, **sizes})
    return {name: jnp.asarray(x) for name, x in arrays.items()}


def assert_as_defined(operands, **options):
    """Value and gradient of the tiles are those of the definition."""

    def both(implementation):
        def loss(operands):
            out = jaxattn.attention(**operands, **options, implementation=implementation)
            return jnp.sum(jnp.sin(out)), out

        return jax.grad(loss, has_aux=True)(operands)

    jax.tree.map(
        lambda got, want: np.testing.assert_array_less(error(got, want), TOLERANCE),
        both("blockwise"),
        both("dense"),
    )


class Backwards:
    """No mask, but a base of one."""

    def __call__(self, query_positions, key_positions):
        return key_positions >= query_positions


@mask_class(static=("align",))
class Reversed(Backwards, Causal):
    """Causal's fields, and not its meaning."""


def test_call_from_another_base():
    assert not Reversed().reflexive
    positions = in_blocks(np.tile(np.arange(12, dtype=np.int32), (2, 1)), 4)
    assert_sound(Reversed(), positions, positions)
    assert_as_defined(operands(), mask=Reversed())


class OtherDocuments(Segments):
    """Not a pytree that JAX knows: it takes a mask for a leaf."""

    def __call__(self, query_positions, key_positions):
        return ~super().__call__(query_positions, key_positions)


LONG = 40
LIMIT = jnp.asarray([4], jnp.int32)
IDS = jnp.asarray([[0, 0, 1, 1, 1, 2, 2, 0, 1]])


@pytest.mark.parametrize(
    "mask",
    [
        Predicate(lambda query, key: key < LIMIT[:, None, None, None]),
        OtherDocuments(IDS),
        OtherDocuments(IDS) & Causal(),
    ],
    ids=["predicate", "documents", "composed"],
)
def test_numbers_of_the_only_example(mask):
    assert_as_defined(operands(batch=(1,)), mask=mask)


@pytest.mark.parametrize(
    "mask",
    [
        Lengths(key=jnp.asarray([[4], [5]])),
        Lengths(key=jnp.asarray([[4, 5, 6]])) & SlidingWindow(2, 0),
        Global(jnp.asarray([[[1]], [[2]]])),
        Segments(jnp.stack([IDS, IDS[:, ::-1]])),
    ],
    ids=repr,
)
def test_batch_axes_of_one_beside_others(mask):
    assert_as_defined(operands(batch=(2, 3)), mask=mask)


@pytest.mark.parametrize(
    "mask",
    [Global(()), Global((99,)), SlidingWindow(2, 0) & ~SlidingWindow(None, None)],
    ids=repr,
)
def test_no_tile_at_all(mask):
    assert_as_defined(operands(queries=17, keys=17), mask=mask)


@mask_class(leaves=("numbers",))
class Slope(Bias):
    """A slope for each head, or each key head, which nobody cut into heads."""

    numbers: jax.Array

    def __call__(self, query_positions, key_positions):
        return self.numbers * (key_positions - query_positions).astype(self.numbers.dtype)


@mask_class(leaves=("slopes",))
class Raised(ALiBi):
    """ALiBi and a number for each head, of which its parent's cut into heads knows nothing."""

    def __call__(self, query_positions, key_positions):
        numbers = jnp.arange(4.0)[:, None, None]
        return super().__call__(query_positions, key_positions) * (1 + numbers)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("numbers", ["one", "key heads", "heads"])
def test_a_bias_that_is_not_cut_into_heads(key_heads, numbers):
    count = {"one": 1, "key heads": key_heads, "heads": 4}[numbers]
    slopes = jnp.linspace(0.1, 2.0, count)
    assert_as_defined(operands(key_heads=key_heads), bias=Slope(slopes[:, None, None]))


def test_a_bias_on_top_of_one_of_ours():
    assert_as_defined(operands(), bias=Raised(jnp.linspace(0.1, 1.0, 4)))


def test_which_biases_are_looped_over():
    """The right answer alone would not show that everything runs unlooped."""
    arrays = operands()
    names = "mask scale softcap score_mod dropout_key query_positions key_positions precision"
    options = {**dict.fromkeys(names.split()), "dropout_rate": 0.0}
    looped = lambda bias: loopable(jaxattn._door.enter(**arrays, **options, bias=bias))
    assert looped(ALiBi(jnp.ones(4))) and looped(Slope(jnp.ones((1, 1, 1))))
    assert not looped(Slope(jnp.ones((2, 1, 1)))) and not looped(Raised(jnp.ones(4)))


def test_padding_does_not_reach_the_derivative_of_scale():
    x = operands()["query"]
    query = x.at[:, 6:].set(jnp.nan)

    def total(scale, implementation):
        mask = Lengths(query=6, key=6)
        out = jaxattn.attention(query, x, x, mask=mask, scale=scale, implementation=implementation)
        return jnp.sum(out[:, :6] ** 2)

    for derivative in (jax.grad(total), jax.grad(jax.grad(total))):
        want = derivative(0.5, "dense")
        assert jnp.isfinite(want) and error(derivative(0.5, "blockwise"), want) < TOLERANCE


@jax.tree_util.register_pytree_node_class
class Flagged(Global):
    """A constructor that takes more than its parent's."""

    def __init__(self, tokens, flag):
        super().__init__(tokens)
        self.flag = flag

    def tree_flatten(self):
        return (self.tokens,), self.flag

    @classmethod
    def tree_unflatten(cls, static, children):
        return cls(children[0], static)


def test_a_constructor_that_takes_more():
    assert_as_defined(operands(), mask=Flagged(jnp.asarray([2, 3]), "flag"))


def test_a_function_is_compiled_once_and_read_anew():
    """Equal calls outside `jit` share a program; what a function closes over may have changed."""
    width = [3]
    mask = Predicate(lambda query, key: (key <= query) & (query - key < width[0]))
    bias = lambda query, key: 0.1 * (key - query).astype(jnp.float64)
    other = OtherDocuments(IDS)
    arrays = operands()
    sizes = []
    for _ in range(3):
        for options in ({"mask": mask}, {"bias": bias}, {"mask": other}):
            jaxattn.attention(**arrays, **options, implementation="blockwise")
        sizes.append(blockwise.compiled._cache_size())
    assert sizes[0] == sizes[1] == sizes[2]
    for width[0] in (1, 9):
        assert_as_defined(arrays, mask=mask)


INNER = {
    "array of an inner jit": lambda x: jax.jit(lambda s: s * x),
    "array in a branch": lambda x: lambda s: jax.lax.cond(True, lambda s: s * x, lambda s: s, s),
    "derivative rule": lambda x: ruled(x),
    "callback": lambda x: (
        lambda s: jax.pure_callback(
            lambda s: np.asarray(s) * np.asarray(x), s, s, vmap_method="broadcast_all"
        )
    ),
}


def ruled(x):
    """The sine, with x times its tangent."""
    sine = jax.custom_jvp(jnp.sin)
    sine.defjvp(lambda primals, tangents: (sine(*primals), x * tangents[0]))
    return sine


@pytest.mark.parametrize("name", INNER)
def test_a_function_that_calls_another_is_not_taken_for_what_it_was(name):
    """Neither the text of a program nor the function itself shows these."""
    inside = {}
    score_mod = lambda scores, query, key: inside["function"](scores)
    arrays = operands()

    def found(implementation):
        options = {"score_mod": score_mod, "implementation": implementation}
        loss = lambda value: jnp.sum(jnp.sin(jaxattn.attention(**arrays | value, **options)))
        if name == "callback":
            return loss({"value": arrays["value"]})
        return jax.grad(loss)({"query": arrays["query"]})["query"]

    answers = []
    for x in (1.0, 2.0):
        inside["function"] = INNER[name](jnp.asarray([x]))
        got, want = found("blockwise"), found("dense")
        assert error(got, want) < TOLERANCE
        answers.append(want)
    assert error(*answers) > 1e-3


@dataclasses.dataclass
class Lean:
    """A callable that compares by its array."""

    numbers: jax.Array

    def __call__(self, query_positions, key_positions):
        return self.numbers * (query_positions - key_positions).astype(jnp.float64)


def test_callables_that_cannot_be_compared():
    for x in (1.0, 2.0):
        assert_as_defined(operands(), bias=Lean(jnp.array([x, 2, 3, 4])[:, None, None]))


@pytest.mark.parametrize("held", ["lengths", "segments", "array", "global"])
def test_export_for_any_batch_with_numbers_of_each_example(held):
    masks = {
        "lengths": lambda query: Lengths(key=jnp.full(query.shape[:1], 4)),
        "segments": lambda query: Segments(jnp.zeros(query.shape[:2], jnp.int32)),
        "array": lambda query: jnp.ones((query.shape[0], 1, LONG, LONG), bool),
        "global": lambda query: SlidingWindow(4, 1) | Global((0, 17)),
    }

    def gradient(query, key, value):
        def loss(query):
            options = {"mask": masks[held](query), "implementation": "blockwise"}
            return jnp.sum(jnp.sin(jaxattn.attention(query, key, value, **options)))

        return jax.grad(loss)(query)

    (batch,) = jax.export.symbolic_shape("b")
    sizes = {"queries": LONG, "keys": LONG}
    example = operands(**sizes).values()
    of = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in example]
    program = jax.export.export(jax.jit(gradient), platforms=["cpu"])(*of)
    for count in (1, 2):
        arrays = operands(batch=(count,), **sizes).values()
        assert error(program.call(*arrays), gradient(*arrays)) < TOLERANCE


def test_tiles_of_odd_lengths_are_even_shares(monkeypatch):
    """No length computes many more pairs than it has."""
    plan = jaxattn.plan
    monkeypatch.setattr(plan, "ROWS", plan.DEFAULT_ROWS)
    monkeypatch.setattr(plan, "COLUMNS", plan.DEFAULT_COLUMNS)
    names = "mask bias scale softcap score_mod dropout_key query_positions key_positions precision"
    options = {**dict.fromkeys(names.split()), "dropout_rate": 0.0}
    for length in (*range(1025, 1300, 6), 2053, 3091, 4099):
        x = jnp.zeros((1, length, 1, 1))
        found = plan.default_plan(jaxattn._door.enter(x, x, x, **options))
        whole = lambda block, length=length: -(-length // block) * block
        assert whole(found.rows) * whole(max(found.columns, found.wide)) <= 1.15 * length**2
