"""Linear attention: the quadratic form, the recurrence, the chunks; O(T) in every derivative."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import jaxattn
from jaxattn import linear_scan
from jaxattn.feature_maps import elu_plus_one, random_features, relu
from jaxattn.linear import LinearState
from jaxattn.masks import Causal, Lengths, SlidingWindow
from tests import calls
from tests.calls import jit
from tests.conformance import FOLDER, onnx_cases
from tests.differentiation import check_derivatives, orders
from tests.jaxprs import equations
from tests.tolerances import assert_close, error

linear_attention = jit(jaxattn.linear_attention, static_argnames=("feature_map", "normalize"))
with_state = jit(jaxattn.linear_attention_with_state, static_argnames=("feature_map", "normalize"))

MAPS = {
    "elu": (elu_plus_one, lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))),
    "relu": (relu, lambda x: np.maximum(x, 0)),
    "identity": (None, lambda x: x),
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(linear_scan, "CHUNK", 4)
    monkeypatch.setattr(linear_scan, "CHANNEL_CHUNK", 3)


def heads(queries=10, keys=None, batch=(2,), count=4, key_heads=2, size=3, value_size=5, seed=0):
    keys = queries if keys is None else keys
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((*batch, queries, count, size)),
        rng.standard_normal((*batch, keys, key_heads, size)),
        rng.standard_normal((*batch, keys, key_heads, value_size)),
    )


def gates(queries=10, batch=(2,), key_heads=2, features=None, seed=1):
    """A decay in (-2, 0), for each head or each feature, and β in (0, 1)."""
    rng = np.random.default_rng(seed)
    last = () if features is None else (features,)
    decay = -2 * rng.uniform(size=(*batch, queries, key_heads, *last))
    return decay, rng.uniform(size=(*batch, queries, key_heads))


def quadratic(query, key, value, phi, causal=False, normalize=True, decay=None):
    """All pairs of one example, weight by weight, in float64."""
    (queries, count, _), (keys, key_heads, _) = query.shape, key.shape
    query, key = phi(query), phi(key)
    out = np.zeros((queries, count, value.shape[-1]))
    for i, h in np.ndindex(queries, count):
        g, total = h // (count // key_heads), 0.0
        for j in range(min(keys, i + 1) if causal else keys):
            kept = 1.0 if decay is None else np.exp(decay[j + 1 : i + 1, g].sum(axis=0))
            weight = np.sum(query[i, h] * kept * key[j, g])
            out[i, h] += weight * value[j, g]
            total += weight
        if normalize and total != 0:
            out[i, h] /= total
    return out


def recurrence(query, key, value, decay=None, beta=None, memory=None):
    """The delta rule of one example, token by token, in float64; φ(x) = x, not normalised."""
    (queries, count, size), key_heads = query.shape, key.shape[1]
    shape = (key_heads, size, value.shape[-1])
    memory = np.zeros(shape) if memory is None else np.array(memory)
    out = np.zeros((queries, count, value.shape[-1]))
    for i in range(queries):
        for g in range(key_heads):
            if decay is not None:
                memory[g] *= np.exp(np.broadcast_to(decay[i, g], (size,)))[:, None]
            written = value[i, g]
            if beta is not None:
                written = beta[i, g] * (value[i, g] - memory[g].T @ key[i, g])
            memory[g] += np.outer(key[i, g], written)
        for h in range(count):
            out[i, h] = memory[h // (count // key_heads)].T @ query[i, h]
    return out, memory


def each(function, *arrays):
    return np.stack([function(*(x[b] for x in arrays)) for b in range(len(arrays[0]))])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_is_the_quadratic_form(name, causal):
    ours, theirs = MAPS[name]
    operands, mask = heads(), Causal() if causal else None
    for normalize in (True, False):
        if name == "identity" and normalize:
            continue
        want = each(
            functools.partial(quadratic, phi=theirs, causal=causal, normalize=normalize), *operands
        )
        out = linear_attention(
            *map(jnp.asarray, operands), mask=mask, feature_map=ours, normalize=normalize
        )
        assert error(out, want) <= 1e-12


@hypothesis.given(
    queries=st.integers(0, 11), keys=st.integers(0, 7), groups=st.sampled_from([1, 3])
)
@hypothesis.settings(max_examples=4)
def test_any_shape(queries, keys, groups):
    causal = keys == 7
    operands = heads(queries, None if causal else keys, count=2 * groups)
    mask = Causal() if causal else None
    want = each(functools.partial(quadratic, phi=MAPS["elu"][1], causal=causal), *operands)
    out = linear_attention(*map(jnp.asarray, operands), mask=mask)
    assert error(out, want) <= 1e-12


@pytest.mark.parametrize("features", [None, 3])
def test_decay_normalised(features):
    operands, (decay, _) = heads(), gates(features=features)
    out = linear_attention(*map(jnp.asarray, operands), mask=Causal(), decay=jnp.asarray(decay))
    phi = MAPS["elu"][1]
    want = each(lambda q, k, v, g: quadratic(q, k, v, phi, True, decay=g), *operands, decay)
    assert error(out, want) <= 1e-12


@pytest.mark.parametrize(("gated", "features"), [(False, None), (True, None), (True, 3)])
def test_delta_rule_with_state(gated, features):
    operands, (decay, beta) = heads(), gates(features=features)
    first = np.random.default_rng(7).standard_normal((2, 2, 3, 5))
    state = LinearState(jnp.asarray(first), jnp.zeros((2, 2, 3)))
    options = dict(beta=jnp.asarray(beta), decay=jnp.asarray(decay) if gated else None)
    out, state = jit(
        functools.partial(
            jaxattn.linear_attention_with_state,
            mask=Causal(),
            feature_map=None,
            normalize=False,
            **options,
        )
    )(*map(jnp.asarray, operands), state=state)
    for b in range(2):
        q, k, v = (x[b] for x in operands)
        want, memory = recurrence(q, k, v, decay[b] if gated else None, beta[b], first[b])
        assert error(out[b], want) <= 1e-12 and error(state.memory[b], memory) <= 1e-12


@pytest.mark.parametrize("rule", ["normalised", "decay", "gated delta"])
def test_step_by_step_is_the_whole(rule):
    operands, (decay, beta) = heads(queries=6), gates(queries=6, features=3)
    options = {"normalised": {}, "decay": dict(decay=decay)}.get(rule, dict(decay=decay, beta=beta))
    static = dict(feature_map=None, normalize=False) if rule == "gated delta" else {}
    arrays = tuple(map(jnp.asarray, operands)), jax.tree.map(jnp.asarray, options)

    @jit
    def both(arrays):
        (query, key, value), options = arrays

        def step(state, token):
            (q, k, v), given = token
            out, state = jaxattn.linear_attention_step(q, k, v, state, **given, **static)
            return state, out

        _, state = jaxattn.linear_attention_with_state(
            query[:, :0], key[:, :0], value[:, :0], mask=None, **static
        )
        last, out = jax.lax.scan(step, state, jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), arrays))
        whole = jaxattn.linear_attention_with_state(
            query, key, value, mask=Causal(), **options, **static
        )
        return (jnp.moveaxis(out, 0, 1), last), whole

    (out, last), (whole, state) = both(arrays)
    assert error(out, whole) <= 1e-13
    assert error(last.memory, state.memory) <= 1e-13
    assert error(last.total, state.total) <= 1e-13


def test_state_joins_parts():
    query, key, value = map(jnp.asarray, heads())
    _, state = with_state(query[:, :7], key[:, :7], value[:, :7])
    rest = linear_attention(query[:, 7:], key[:, 7:], value[:, 7:], mask=Causal(), state=state)
    whole = linear_attention(query, key, value, mask=Causal())
    assert error(rest, whole[:, 7:]) <= 1e-13


def test_a_decay_of_minus_infinity_forgets():
    """Two documents in a row: -inf at the start of the second; with finite derivatives."""
    query, key, value = map(jnp.asarray, heads(batch=()))
    decay = jnp.zeros((10, 2)).at[6].set(-jnp.inf)

    @jit
    def run(query, key, value, decay):
        causal = functools.partial(jaxattn.linear_attention, mask=Causal())
        parts = [causal(*(x[p] for x in (query, key, value))) for p in (slice(6), slice(6, None))]
        loss = lambda *x: jnp.sum(causal(*x[:3], decay=x[3]) ** 2)
        gradients = jax.grad(loss, (0, 1, 2, 3))(query, key, value, decay)
        return causal(query, key, value, decay=decay), jnp.concatenate(parts), gradients

    out, want, gradients = run(query, key, value, decay)
    assert error(out, want) <= 1e-13
    assert all(jnp.isfinite(g).all() for g in gradients)


def test_large_decays_keep_their_precision():
    """A difference of sums would lose what comes after a large decay."""
    rng = np.random.default_rng(0)
    operands = heads(queries=12, batch=())
    decay = np.where(np.arange(12) == 1, -3e4, -rng.uniform(size=12))[:, None] * np.ones(2)
    narrow = [jnp.asarray(x, jnp.float32) for x in (*operands, decay)]
    out = linear_attention(*narrow[:3], mask=Causal(), decay=narrow[3])
    wide = [np.asarray(x, np.float64) for x in narrow]
    want = quadratic(*wide[:3], MAPS["elu"][1], True, decay=wide[3])
    assert error(out, want) <= 2e-6


def test_causality_is_exact():
    query, key, value = map(jnp.asarray, heads(batch=(), count=1, key_heads=1))
    decay, beta = map(jnp.asarray, gates(batch=(), key_heads=1))
    run = functools.partial(
        jaxattn.linear_attention,
        mask=Causal(),
        decay=decay,
        beta=beta,
        normalize=False,
        feature_map=None,
    )
    jacobians = jit(jax.jacrev(run, (1, 2)))(query, key, value)
    for jacobian in jacobians:
        size = np.abs(jacobian[:, 0, :, :, 0]).max(axis=(1, 3))
        np.testing.assert_array_equal(size != 0, np.tri(10, dtype=bool))


def test_lengths_are_inert():
    """NaN beyond each length changes nothing, gradients included; rows there are 0."""
    query, key, value = map(jnp.asarray, heads(queries=6))
    mask = Causal() & Lengths(jnp.array([6, 4]), jnp.array([6, 4]))
    poison = lambda x: x.at[1, 4:].set(jnp.nan)

    @jit
    def run(operands):
        loss = lambda *x: jnp.sum(jaxattn.linear_attention(*x, mask=mask) ** 2)
        return jaxattn.linear_attention(*operands, mask=mask), jax.grad(loss, (0, 1, 2))(*operands)

    clean = run((query, key, value))
    poisoned = run((poison(query), poison(key), poison(value)))
    jax.tree.map(np.testing.assert_array_equal, clean, poisoned)
    assert (clean[0][1, 4:] == 0).all() and (clean[1][1][1, 4:] == 0).all()
    alone = linear_attention(query[1:, :4], key[1:, :4], value[1:, :4], mask=Causal())
    assert error(clean[0][1:, :4], alone) <= 1e-13


def test_keys_beyond_their_length_have_no_weight():
    """Without order too: φ(0) is 1, and would count in the sum of weights."""
    query, key, value = map(jnp.asarray, heads(queries=4, keys=6))
    out = linear_attention(query, key, value, mask=Lengths(key=jnp.array([6, 3])))
    assert error(out[1], linear_attention(query[1], key[1, :3], value[1, :3])) <= 1e-13
    empty = linear_attention(query, key, value, mask=Lengths(key=0))
    np.testing.assert_array_equal(empty, 0)


def test_zero_normaliser_is_zero_with_derivative_zero():
    """Under relu no feature is shared: 0, and no NaN to second order."""
    query, key, value = jnp.full((1, 1, 2), -1.0), jnp.ones((3, 1, 2)), jnp.ones((3, 1, 2))
    run = functools.partial(jaxattn.linear_attention, feature_map=relu)
    assert_close(run(query, key, value), np.zeros((1, 1, 2)))
    loss = lambda *x: jnp.sum(run(*x) ** 2)
    gradient = jax.grad(loss, (0, 1, 2))
    both = jit(lambda *x: jax.jvp(gradient, x, x))(query, key, value)
    assert all((x == 0).all() for x in jax.tree.leaves(both))


@pytest.mark.parametrize(
    "rule", [pytest.param("normalised", marks=pytest.mark.slow), "gated delta"]
)
@orders
def test_derivatives(rule, reverse):
    query, key, value = heads(queries=5, batch=(), count=2)
    decay, beta = gates(queries=5, batch=(), features=3 if rule == "normalised" else None)
    if rule == "normalised":
        run = lambda q, k, v, g: jaxattn.linear_attention(q, k, v, decay=g, mask=Causal())
        check_derivatives(run, query, key, value, decay, reverse=reverse)
    else:
        run = lambda q, k, v, g, b: jaxattn.linear_attention(
            q, k, v, decay=g, beta=b, mask=Causal(), normalize=False, feature_map=None
        )
        check_derivatives(run, query, key / 2, value, decay, beta, reverse=reverse)


@orders
def test_derivatives_without_order(reverse):
    check_derivatives(
        jaxattn.linear_attention, *heads(queries=3, keys=4, batch=(), count=2), reverse=reverse
    )


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [PartitionSpec("x"), PartitionSpec(None, None, "x")], ids=str)
@pytest.mark.parametrize("rule", ["whole", "causal", "gated delta"])
def test_shard_map_over_batch_or_heads(rule, spec, kind):
    """Four devices with a quarter of the batch or of the heads each: value and gradient."""
    sizes = dict(queries=6, batch=(4,), key_heads=4)
    count = 5 if rule == "gated delta" else 3
    arrays = tuple(map(jnp.asarray, (*heads(**sizes), *gates(**sizes))[:count]))
    mesh = jax.make_mesh((4,), ("x",), axis_types=(kind,))

    def run(query, key, value, decay=None, beta=None):
        gated = dict(decay=decay, beta=beta, normalize=False) if rule == "gated delta" else {}
        mask = None if rule == "whole" else Causal()
        return jaxattn.linear_attention(query, key, value, mask=mask, **gated)

    def both(function):
        loss = lambda *x: jnp.sum(jnp.sin(function(*x)))
        return jit(lambda x: (function(*x), jax.grad(loss, tuple(range(count)))(*x)))

    with jax.set_mesh(mesh):
        local = jax.shard_map(run, in_specs=spec, out_specs=spec)
        placed = jax.device_put(arrays, jax.NamedSharding(mesh, spec))
        got = jax.tree.leaves(both(local)(placed))
    for index, (a, b) in enumerate(zip(got, jax.tree.leaves(both(run)(arrays)), strict=True)):
        assert error(a, b) <= 1e-13, index


def test_random_features_estimate_attention():
    """With many features linear attention is attention; with few it is not."""
    query, key, value = (jnp.asarray(x) / 2 for x in heads(queries=6, batch=(), size=4))

    @jit
    def run(seed):
        features = random_features(seed, 4, 16384, dtype=jnp.float64)
        maps = features, type(features)(features.directions[:8])
        return [jaxattn.linear_attention(query, key, value, feature_map=m) for m in maps]

    want = calls.attention(query, key, value, implementation="dense")
    near, far = (error(out, want) for out in run(jax.random.key(0)))
    assert near < 0.03 and far > 3 * near


def test_random_directions_are_orthogonal_and_long_enough():
    directions = random_features(jax.random.key(0), 4, 6).directions
    gram = np.asarray(directions @ directions.T)
    off = gram - np.diag(np.diag(gram))
    assert np.abs(off[:4, :4]).max() < 1e-5 < np.abs(off[4:, :4]).max()
    lengths = np.linalg.norm(directions, axis=-1)
    assert (lengths > 0.1).all() and lengths.std() > 0.1  # not all of one length


def test_dtype_is_kept_and_sums_are_wide():
    query, key, value = (jnp.asarray(x, jnp.bfloat16) for x in heads())
    out, state = with_state(query, key, value, mask=Causal())
    assert out.dtype == jnp.bfloat16 and state.memory.dtype == jnp.float32
    wide = [np.asarray(x, np.float64) for x in (query, key, value)]
    want = each(functools.partial(quadratic, phi=MAPS["elu"][1], causal=True), *wide)
    assert_close(out, want)


# O(T): the jaxpr and the compiled program, beside a quadratic control.

SIZES = 1024, 4096


def all_pairs(query, key, value):
    """The control: T·S weights."""
    weights = jnp.einsum("tnh,snh->nts", elu_plus_one(query), elu_plus_one(key))
    return jnp.einsum("nts,snh->tnh", jnp.where(jnp.tri(len(key), dtype=bool), weights, 0), value)


def modes(run):
    loss = lambda *x: jnp.sum(run(*x) ** 2)
    gradient = jax.grad(loss, (0, 1, 2))
    inner = lambda *x: sum(jnp.sum(g * y) for g, y in zip(gradient(*x), x, strict=True))
    return {
        "forward": run,
        "jvp": lambda *x: jax.jvp(run, x, x)[1],
        "gradient": gradient,
        "hvp": lambda *x: jax.jvp(gradient, x, x)[1],
        "gradient of gradient": jax.grad(inner, (0, 1, 2)),
    }


def plain(*x):
    return jaxattn.linear_attention(*x, mask=Causal())


def delta(*x):
    beta = jnp.full(x[1].shape[:-1], 0.5, jnp.float32)
    options = dict(decay=-beta, beta=beta, normalize=False)
    return jaxattn.linear_attention(*x, mask=Causal(), **options)


def largest(function, size):
    """Elements of the largest array in the jaxpr."""
    x = jax.ShapeDtypeStruct((size, 1, 8), jnp.float32)
    with jax.numpy_rank_promotion("allow"):
        jaxpr = jax.make_jaxpr(function)(x, x, x)
    return max(v.aval.size for e in equations(jaxpr) for v in e.outvars if hasattr(v.aval, "size"))


def temporary(function, size):
    x = jax.ShapeDtypeStruct((size, 1, 8), jnp.float32)
    with jax.numpy_rank_promotion("allow"):
        return jit(function).lower(x, x, x).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    ("rule", "mode"),
    [
        (rule, mode)
        if (rule, mode) in {(plain, "gradient"), (delta, "hvp"), (delta, "gradient of gradient")}
        else pytest.param(rule, mode, marks=pytest.mark.slow)
        for rule in (plain, delta)
        for mode in modes(rule)
    ],
)
def test_no_array_grows_faster_than_length(rule, mode):
    small, large = (largest(modes(rule)[mode], size) for size in SIZES)
    assert large <= 4.1 * small


def test_the_quadratic_form_fails_the_same_check():
    small, large = (largest(modes(all_pairs)["gradient"], size) for size in SIZES)
    assert large > 15 * small


@pytest.mark.parametrize(
    "mode", ["gradient", pytest.param("gradient of gradient", marks=pytest.mark.slow)]
)
def test_memory_is_linear(mode, monkeypatch):
    monkeypatch.setattr(linear_scan, "CHUNK", 64)
    small, large = (temporary(modes(delta)[mode], size) for size in SIZES)
    assert large <= 4.5 * small
    assert large < temporary(modes(all_pairs)[mode], SIZES[1]) / 4


LINEAR = [case for case in onnx_cases() if case.operator == "LinearAttention"]


@pytest.mark.skipif(FOLDER is None, reason="JAXATTN_CONFORMANCE is not set")
@pytest.mark.parametrize("case", LINEAR, ids=[case.name for case in LINEAR])
def test_onnx(case):
    """ONNX's operator cases: outputs and present state, within their tolerances."""
    attributes, inputs = case.attributes, case.inputs
    count, key_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
    rule = attributes.get("update_rule", "gated_delta")
    split = lambda x, n: jnp.asarray(x.reshape(*x.shape[:2], n, -1))
    query, key, value = (
        split(inputs[name], n)
        for name, n in (("query", count), ("key", key_heads), ("value", key_heads))
    )
    options = dict(scale=attributes.get("scale") or 1 / np.sqrt(query.shape[-1]))
    if "gated" in rule:
        decay = split(inputs["decay"], key_heads)
        options["decay"] = decay[..., 0] if decay.shape[-1] == 1 else decay
    if "delta" in rule:
        options["beta"] = jnp.asarray(inputs["beta"])
    if "past_state" in inputs:
        past = jnp.asarray(inputs["past_state"])
        options["state"] = LinearState(past, jnp.zeros(past.shape[:-1]))
    out, state = with_state(
        query, key, value, mask=Causal(), feature_map=None, normalize=False, **options
    )
    for got, name in ((out.reshape(inputs["query"].shape), "output"), (state[0], "present_state")):
        want = case.outputs[name]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol)


@pytest.mark.parametrize(
    ("change", "error_type", "message"),
    [
        (dict(mask=jnp.ones((10, 10), bool)), TypeError, "never looks at pairs: an array needs"),
        (dict(mask=SlidingWindow(1, 1)), ValueError, "mask must be None, Causal.* got SlidingWind"),
        (dict(mask=Causal() | Lengths(key=3)), ValueError, "never looks at pairs"),
        (dict(mask=None, decay=jnp.ones((2, 10, 2))), ValueError, "decay acts from token to token"),
        (dict(beta=jnp.ones((2, 10, 2))), ValueError, "beta has no meaning where weights are norm"),
        (dict(scale=2.0), ValueError, "scale has no meaning where weights are normalised"),
        (dict(decay=jnp.ones((2, 10, 4))), ValueError, r"decay must be \[\*B, S, K\] or"),
        (dict(decay=jnp.ones((2, 10, 2), int)), TypeError, "decay must be a floating array"),
        (dict(feature_map=lambda x: x[..., 0, :]), ValueError, r"feature_map must map \[..., H\]"),
        (dict(state=jnp.ones(3)), TypeError, "state must be a LinearState"),
        (
            dict(state=LinearState(jnp.ones((2, 2, 4, 5)), jnp.ones((2, 2, 4)))),
            ValueError,
            r"state.memory must be \[\*B, K, F, Hv\] = \[2, 2, 3, 5\]",
        ),
        (dict(query=jnp.ones((2, 9, 4, 3))), ValueError, "needs T = S, got T = 9"),
        (dict(key=jnp.ones((2, 10, 3, 3))), ValueError, "K must agree"),
        (dict(value=jnp.ones((2, 10, 2, 5), "float32")), TypeError, "must share one dtype"),
        (
            dict(feature_map=random_features(jax.random.key(0), 4, 8)),
            ValueError,
            "directions must be .* with H = 3",
        ),
    ],
)
def test_bad_input(change, error_type, message):
    operands = dict(zip(("query", "key", "value"), map(jnp.asarray, heads()), strict=True))
    with pytest.raises(error_type, match=message):
        jaxattn.linear_attention(**(operands | dict(mask=Causal()) | change))


def test_bad_sizes_of_random_features():
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        random_features(jax.random.key(0), 4, 0)
    with pytest.raises(TypeError, match="head_size must be an integer"):
        random_features(jax.random.key(0), 4.0, 8)
