"""Random calls: the tiled value, gradient and Hessian product are those of the definition.

12 examples, and 6 of sparse masks over many tiles, the same in every run; others, and more, by

    JAXATTN_EXAMPLES=500 python -m pytest tests/test_blockwise_random.py --hypothesis-seed=1

Tiles are 4 x 3 (see conftest). Both are held against the definition in float64 on the same
(rounded) numbers; in a narrower dtype the tiles may be as far off as the definition is itself, a
few times over, and by a few roundings of the answer.
"""

import os

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np

import jaxattn
from jaxattn.biases import ALiBi
from jaxattn.masks import (
    BigBird,
    Block,
    Causal,
    Dense,
    Dilated,
    Global,
    Lengths,
    Prefix,
    Segments,
    SlidingWindow,
)
from tests import calls
from tests.tolerances import error

EXAMPLES = int(os.environ.get("JAXATTN_EXAMPLES", "0"))
FLOAT64 = 1e-12
TIMES, ROUNDINGS = 6, 12  # of the definition's own error; of the dtype

SIZES = st.fixed_dictionaries(
    {
        "batch": st.lists(st.integers(1, 2), max_size=2).map(tuple),
        "queries": st.integers(1, 9),
        "keys": st.integers(1, 9),
        "key_heads": st.integers(1, 2),
        "size": st.integers(1, 5),
        "value_size": st.integers(1, 5),
    }
)
BIASES = ["none", "array", "alibi", "function"]
EXTRAS = ["scale", "softcap", "score_mod", "dropout"]


def pairs(rng, batch, heads, key_heads, queries, keys):
    """A shape over pairs, `[*B, N, T, S]` with K or broadcasting ones in places."""
    count = rng.choice([heads, key_heads])
    return tuple(int(n) if rng.random() < 0.7 else 1 for n in (*batch, count, queries, keys))


def masks(rng, batch, heads, key_heads, queries, keys):
    """One of each kind, on random numbers."""
    allowed = jnp.asarray(rng.random(pairs(rng, batch, heads, key_heads, queries, keys)) < 0.6)
    ids = jnp.asarray(rng.integers(0, 3, (*batch, max(queries, keys))))
    lengths = jnp.asarray(rng.integers(0, keys + 1, batch))
    start, end = Causal("start"), Causal("end")
    return {
        "none": None,
        "array": allowed,
        "causal": start,
        "causal at the end": end,
        "window": SlidingWindow(int(rng.integers(0, 4)), int(rng.integers(0, 3)), "end"),
        "lengths": Lengths(key=lengths),
        "segments": Segments(ids) & start,
        "prefix": Prefix(lengths) | start,
        "dilated": Dilated(2, "start") & ~Causal("start"),
        "bigbird": BigBird(size=2, blocks=5, window=1, random=1, global_blocks=(0,), align="start"),
        "table": Dense(jnp.asarray(rng.random((queries, keys)) < 0.5)) & Lengths(key=lengths),
    }


def warp(strength, scores, query_positions, key_positions):
    """A score function with a number that is learned."""
    distance = (query_positions - key_positions).astype(scores.dtype)
    return scores + strength.astype(scores.dtype) * jnp.sin(scores) - 0.1 * distance


def wave(rates, query_positions, key_positions):
    """A bias of each head, or of each key head."""
    places = (query_positions + 2 * key_positions).astype(rates.dtype)
    return jnp.cos(jnp.expand_dims(rates, tuple(range(places.ndim - 3))) * places)


def drawn(sizes, groups, mask, bias, extras, seed):
    """Differentiable operands, and all else."""
    heads = groups * sizes["key_heads"]
    rng = np.random.default_rng(seed)
    operands = calls.heads(**sizes, count=heads, seed=seed)
    batch, queries, keys = sizes["batch"], sizes["queries"], sizes["keys"]
    options = {"mask": masks(rng, batch, heads, sizes["key_heads"], queries, keys)[mask]}
    if bias == "array":
        shape = pairs(rng, batch, heads, sizes["key_heads"], queries, keys)
        operands["bias"] = np.where(rng.random(shape) < 0.8, rng.standard_normal(shape), -np.inf)
    if bias == "function":
        operands["rates"] = rng.random((rng.choice([1, sizes["key_heads"], heads]), 1, 1))
    if bias == "alibi":
        operands["slopes"] = rng.random(heads)
    for name, array in (("scale", rng.random(heads) + 0.5), ("softcap", np.array(1.5))):
        if name in extras:
            operands[name] = array
    if "score_mod" in extras:
        operands["strength"] = np.array(0.4)
    if "dropout" in extras:
        options |= {"dropout_rate": 0.3, "dropout_key": jax.random.key(seed)}
    return operands, options


def derivatives(operands, options, cotangent, along, implementation):
    """Out and lse, the gradient of a function of both, and the gradient's derivative."""

    def loss(operands):
        given = dict(operands)
        if "slopes" in given:
            given["bias"] = ALiBi(given.pop("slopes"))
        if "rates" in given:
            given["bias"] = jax.tree_util.Partial(wave, given.pop("rates"))
        if "strength" in given:
            given["score_mod"] = jax.tree_util.Partial(warp, given.pop("strength"))
        part = jaxattn.partial_attention(**given, **options, implementation=implementation)
        lse = jnp.where(part.lse == -jnp.inf, 0, part.lse)
        out = part.out.astype(lse.dtype)
        value = jnp.sum(jnp.sin(out) * cotangent.astype(lse.dtype)) + jnp.sum(jnp.cos(lse))
        return value, (part.out, lse)

    @calls.jit
    def everything(operands):
        gradient = jax.grad(loss, has_aux=True)
        (first, results), (second, _) = jax.jvp(gradient, (operands,), (along,))
        return {"result": results, "gradient": first, "hvp": second}

    return everything(operands)


def cast(tree, dtype):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


@hypothesis.given(
    sizes=SIZES,
    groups=st.integers(1, 3),
    mask=st.sampled_from(list(masks(np.random.default_rng(0), (), 1, 1, 1, 1))),
    bias=st.sampled_from(BIASES),
    extras=st.sets(st.sampled_from(EXTRAS)),
    dtype=st.sampled_from(["float64", "float64", "float32", "bfloat16", "float16"]),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(
    max_examples=EXAMPLES or 12,
    derandomize=not EXAMPLES,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # shrinking compiles for minutes
)
def test_random_calls(sizes, groups, mask, bias, extras, dtype, seed):
    operands, options = drawn(sizes, groups, mask, bias, sorted(extras), seed)
    operands, along = cast(operands, dtype), cast(calls.like(operands), dtype)
    shape = (*sizes["batch"], sizes["queries"], groups * sizes["key_heads"], sizes["value_size"])
    cotangent = cast(np.random.default_rng(2).standard_normal(shape), dtype)

    def run(implementation, dtype):
        arrays = (cast(operands, dtype), options, cast(cotangent, dtype), cast(along, dtype))
        return derivatives(*arrays, implementation)

    got, same, want = run("blockwise", dtype), run("dense", dtype), run("dense", "float64")
    for path, exact in jax.tree_util.tree_leaves_with_path(want):
        ours, theirs = (dict(jax.tree_util.tree_leaves_with_path(x))[path] for x in (got, same))
        limit = FLOAT64
        if dtype != "float64":
            limit = TIMES * error(theirs, exact) + ROUNDINGS * float(jnp.finfo(dtype).eps)
        assert ours.dtype == theirs.dtype
        assert error(ours, exact) <= limit, (path, error(ours, exact), limit)


def sparse(rng, length):
    """A mask of few tiles, static or not: near, far, and both."""
    window = SlidingWindow(int(rng.integers(0, 6)), int(rng.integers(0, 3)))
    tokens = Global(tuple(int(t) for t in rng.integers(0, length, int(rng.integers(1, 4)))))
    documents = Segments(jnp.asarray(np.sort(rng.integers(0, 4, length)), jnp.int32))
    blocks = BigBird(size=2, blocks=-(-length // 2), random=1, global_blocks=(0,))
    return [
        window,
        window | tokens,
        Causal() & (window | tokens),
        window & documents,
        (window | tokens) & documents,
        Block(int(rng.integers(3, 9))) | window,
        tokens & documents | Block(4),
        blocks,
        window & ~tokens,
    ]


@hypothesis.given(
    which=st.integers(0, len(sparse(np.random.default_rng(0), 20)) - 1),
    length=st.integers(18, 40),
    batch=st.lists(st.integers(1, 2), max_size=1).map(tuple),
    groups=st.integers(1, 2),
    key_heads=st.integers(1, 2),
    bias=st.sampled_from(BIASES),
    extras=st.sets(st.sampled_from(["scale", "softcap", "dropout"])),
    seed=st.integers(0, 2**16),
)
@hypothesis.settings(
    max_examples=EXAMPLES or 6,
    derandomize=not EXAMPLES,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
def test_sparse_masks_over_many_tiles(which, length, batch, groups, key_heads, bias, extras, seed):
    sizes = {"queries": length, "keys": length, "key_heads": key_heads, "size": 2, "value_size": 3}
    operands, options = drawn(sizes | {"batch": batch}, groups, "none", bias, sorted(extras), seed)
    options["mask"] = sparse(np.random.default_rng(seed), length)[which]
    operands, along = cast(operands, "float64"), cast(calls.like(operands), "float64")
    cotangent = np.random.default_rng(2).standard_normal((*batch, length, groups * key_heads, 3))
    got, want = (
        derivatives(operands, options, jnp.asarray(cotangent), along, implementation)
        for implementation in ("blockwise", "dense")
    )
    for (path, ours), exact in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True
    ):
        assert error(ours, exact) <= FLOAT64, path
