"""The primitive against the oracle: every feature, dtype and shape; and its relations to itself."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import jaxattn
from jaxattn.biases import ALiBi
from jaxattn.masks import Causal, Predicate
from tests import calls, oracle
from tests.features import FEATURES, combined
from tests.tolerances import FORWARD, assert_close


@pytest.mark.parametrize("name", FEATURES)
def test_feature(implementation, name):
    """Out, and its gradients, in float64."""
    case = combined([name])
    calls.check(implementation, case.operands, case.options, case.oracle)


@pytest.mark.parametrize("dtype", FORWARD)
def test_dtype(implementation, dtype):
    calls.check(implementation, calls.heads(), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_everything_at_once(implementation, dtype):
    names = ["scale", "softcap", "bias", "sink", "dropout", "causal", "lengths"]
    case = combined(names)
    calls.check(implementation, case.operands, case.options, case.oracle, dtype=dtype)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_batch_axes(implementation, batch):
    operands = calls.heads(batch=batch, queries=2, keys=3, count=2, key_heads=1, value_size=2)
    operands["bias"] = np.random.default_rng(5).standard_normal((*batch, 2, 2, 3))
    calls.check(implementation, operands)


# --- relations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [None, "array", "function"])
@pytest.mark.parametrize(("count", "key_heads"), [(4, 2), (6, 1), (3, 3)])
def test_grouped_heads_are_repeated_heads(implementation, count, key_heads, bias):
    """4 heads on 2: as many in a group as there are groups, which a bias must not mix up."""
    operands = calls.heads(count=count, key_heads=key_heads)
    groups = count // key_heads
    repeated = {
        name: x if name == "query" else np.repeat(x, groups, axis=2) for name, x in operands.items()
    }
    numbers = np.random.default_rng(4).random((1, count, 5, 7))
    given = {"array": jnp.asarray(numbers), "function": ALiBi(jnp.asarray(numbers[0, :, 0, 0]))}
    run = functools.partial(
        calls.attention, implementation=implementation, bias=given.get(bias), mask=Causal("end")
    )
    assert_close(run(**operands), run(**repeated))


def test_vmap_is_the_batch_axis(implementation):
    case = combined(["bias", "softcap", "sink"])

    def one(operands, bias):
        rest = {name: case.operands[name] for name in ("softcap", "sink")}
        return jaxattn.attention(**operands, bias=bias, **rest, implementation=implementation)

    operands = {name: case.operands[name] for name in ("query", "key", "value")}
    each = calls.jit(jax.vmap(one))(operands, case.operands["bias"])
    assert_close(each, calls.attention(**case.operands, implementation=implementation))


def test_a_bias_function_is_its_array(implementation):
    def bias(query_positions, key_positions):
        return -jnp.abs(query_positions - key_positions).astype(jnp.float64)

    function = jax.tree_util.Partial(bias)
    array = -np.abs(np.arange(5.0)[:, None] - np.arange(7))
    run = functools.partial(calls.attention, **calls.heads(), implementation=implementation)
    assert_close(run(bias=function), run(bias=array))


def test_a_score_mod_that_adds_is_a_bias(implementation):
    slopes = np.array([0.1, 0.2, 0.3, 0.4])

    def alibi(slopes, scores, query_positions, key_positions):
        distance = (query_positions - key_positions).astype(scores.dtype)
        return scores - slopes.reshape(1, -1, 1, 1) * distance

    score_mod = jax.tree_util.Partial(alibi, slopes)
    bias = -slopes[:, None, None] * (np.arange(5)[:, None] - np.arange(7))
    run = functools.partial(calls.attention, **calls.heads(), implementation=implementation)
    assert_close(run(score_mod=score_mod), run(bias=bias[None]))


def test_arrays_that_a_score_mod_closes_over_are_differentiated(implementation):
    operands, slope = calls.heads(), np.array(0.3)

    def loss(slope):
        steep = lambda scores, query, key: scores * slope
        out = jaxattn.attention(**operands, score_mod=steep, implementation=implementation)
        return jnp.sum(out**2)

    def moved(step):
        return (oracle.attention(**operands, scale=(slope + step) / np.sqrt(3)).out ** 2).sum()

    got = calls.jit(jax.grad(loss))(slope)
    assert abs(got - calls.derivative(moved)) < calls.STENCIL


def test_scale_of_each_head(implementation):
    operands, scales = calls.heads(), np.array([0.1, 0.5, 1.0, 2.0])
    run = functools.partial(calls.attention, implementation=implementation)
    scaled = operands | {"query": operands["query"] * scales[:, None]}
    assert_close(run(**operands, scale=scales), run(**scaled, scale=1.0))


def test_softmax_off_by_one(implementation):
    out = calls.attention(**calls.heads(), sink=0, implementation=implementation)
    assert_close(out, oracle.attention(**calls.heads(), sink=0.0).out)


def test_out_is_weights_times_value():
    case = combined(["softcap", "bias", "sink", "dropout", "causal"])
    out, weights = calls.attention_with_weights(**case.operands, **case.options)
    want = oracle.attention(**case.operands, **case.oracle)
    assert_close(weights, want.weights)
    assert_close(out, want.out)


def test_numpy_arrays_are_taken_as_they_are(implementation):
    """Outside jit too; their dtype is the one computed with."""
    operands = {name: x.astype(np.float32) for name, x in calls.heads().items()}
    options = {"mask": np.tri(5, 7, dtype=bool), "bias": np.zeros((5, 7), np.float32)}
    out = jaxattn.attention(**operands, **options, implementation=implementation)
    assert isinstance(out, jax.Array) and out.dtype == "float32"
    assert_close(out, oracle.attention(**operands, **options).out)


POSITIONS = jnp.array([[3, 0, 4, 1, 2, 6, 5], [0, 1, 2, 3, 4, 5, 6]], jnp.int32)
PLACED = {
    "score_mod": {"score_mod": lambda s, i, j: s + jnp.where(i > j, 1.0, 0.0)},
    "table": {"score_mod": lambda s, i, j: s + jnp.arange(9.0)[j]},
    "bias": {"bias": lambda i, j: ((i + j) % 4).astype(jnp.float64)},
    "mask": {"mask": Predicate(lambda i, j: (i + j) % 4 != 0)},
    "mask beside": {
        "mask": Predicate(lambda i, j: (i + j) % 4 != 0),
        "score_mod": lambda s, i, j: 2 * s,
    },
}


@pytest.mark.parametrize("given", [("key",), ("query",), ("query", "key")], ids="+".join)
@pytest.mark.parametrize("name", PLACED)
def test_functions_of_positions_that_differ_by_example(name, given):
    operands = calls.heads()
    places = {"query": POSITIONS[:, :5], "key": POSITIONS}
    options = PLACED[name] | {f"{side}_positions": places[side] for side in given}
    with jax.numpy_rank_promotion("allow"):
        want, got = (
            jaxattn.attention(**operands, **options, implementation=implementation)
            for implementation in ("dense", "blockwise")
        )
    assert_close(got, want)


# --- random calls ------------------------------------------------------------------------------


@given(
    names=st.sets(st.sampled_from(sorted(FEATURES)), max_size=4),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test_random_features(implementation, names, seed, dtype):
    case = combined(sorted(names))
    fresh = calls.heads(seed=seed)
    operands = {name: fresh.get(name, x) for name, x in case.operands.items()}
    rounded = {name: np.asarray(x, dtype) for name, x in operands.items()}
    out = calls.attention(**rounded, **case.options, implementation=implementation)
    assert_close(out, oracle.attention(**rounded, **case.oracle).out)


sizes = st.fixed_dictionaries(
    {
        "batch": st.lists(st.integers(0, 2), max_size=2).map(tuple),
        "queries": st.integers(0, 9),
        "keys": st.integers(0, 9),
        "key_heads": st.integers(1, 2),
        "size": st.integers(0, 5),
        "value_size": st.integers(0, 5),
    }
)


@given(sizes=sizes, groups=st.integers(1, 3), density=st.floats(0, 1), seed=st.integers(0, 99))
def test_random_shapes_and_masks(implementation, sizes, groups, density, seed):
    operands = calls.heads(**sizes, count=groups * sizes["key_heads"], seed=seed)
    rng = np.random.default_rng(seed)
    shape = (*sizes["batch"], groups * sizes["key_heads"], sizes["queries"], sizes["keys"])
    shape = tuple(size if rng.random() < 0.7 else 1 for size in shape)
    allowed = rng.random(shape) < density
    partial = calls.partial_attention(**operands, mask=allowed, implementation=implementation)
    want = oracle.attention(**operands, mask=allowed)
    assert_close(partial.out, want.out)
    assert_close(partial.lse, want.lse)
