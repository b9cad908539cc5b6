"""Cases with answers that nobody here made: ONNX's operator cases, and calls of real models.

They are found through the variable JAXATTN_CONFORMANCE, a folder, and skipped without it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from tests import calls
from tests.conformance import FOLDER, attention_call, onnx_cases, recorded_calls
from tests.tolerances import assert_close

pytestmark = pytest.mark.skipif(FOLDER is None, reason="JAXATTN_CONFORMANCE is not set")

ELSEWHERE = {"LinearAttention"}  # tests/test_linear.py


def cases(operator):
    found = [case for case in onnx_cases() if case.operator == operator]
    return pytest.mark.parametrize("case", found, ids=[case.name for case in found])


def test_all_cases_are_found():
    operators = [case.operator for case in onnx_cases()]
    assert len(operators) == 65 and operators.count("Attention") == 52
    assert set(operators) == {"Attention", "RotaryEmbedding", "TensorScatter"} | ELSEWHERE
    assert len(recorded_calls()) == 26


@cases("Attention")
def test_attention(case, implementation):
    query, key, value, options = attention_call(case)
    run = functools.partial(calls.attention, implementation=implementation)
    out, want = run(query, key, value, **options), case.outputs["Y"]
    assert out.dtype == want.dtype
    slack = 0.0
    if want.dtype.name == "bfloat16":
        # Theirs rounds intermediates, and is itself up to two units in the last place off. Ours
        # must be the exact answer rounded once, and near theirs but for theirs' own error.
        wide = [x.astype(jnp.float64) for x in (query, key, value)]
        exact = run(*wide, **(options | {"bias": options["bias"].astype(jnp.float64)}))
        assert_close(out, exact)
        slack = np.abs(as_given(exact, want) - want.astype(np.float64))
    assert_within(case, as_given(out, want), "Y", slack)


@cases("Attention")
def test_present_is_past_and_new(case):
    if "present_key" not in case.outputs:
        pytest.skip("the case has no present")
    call = attention_call(case)
    for name, got in (("present_key", call.key), ("present_value", call.value)):
        np.testing.assert_array_equal(np.swapaxes(got, 1, 2), case.outputs[name])


@cases("Attention")
def test_scores_and_weights(case, implementation):
    if "qk_matmul_output" not in case.outputs:
        pytest.skip("the case asks for no scores")
    mode = case.attributes.get("qk_matmul_output_mode", 0)
    call = attention_call(case)
    read = weights_of if mode == 3 else scores_of
    leave = {0: ("softcap", "bias", "mask"), 1: ("bias", "mask")}.get(mode, ())
    options = {name: x for name, x in call.options.items() if name not in leave}
    got = jax.jit(functools.partial(read, options=options, implementation=implementation))(
        call.query, call.key
    )
    assert_within(case, got, "qk_matmul_output")


def scores_of(query, key, options, implementation):
    """Scores `[B, N, T, S]` of any implementation: over one key, the logsumexp is its score."""
    queries, keys = query.shape[1], key.shape[1]
    options = dict(options)
    bias, mask = options.pop("bias", None), options.pop("mask", None)
    each = (keys, *query.shape[:1])
    if bias is not None:
        bias = jnp.expand_dims(bias, tuple(range(4 - bias.ndim)))
        options["bias"] = jnp.moveaxis(bias, -1, 0)[..., None]
    if mask is not None:
        options["mask"] = mask
        options["key_positions"] = jnp.broadcast_to(jnp.arange(keys)[:, None, None], (*each, 1))
    if "query_positions" in options:
        rows = options["query_positions"]
        options["query_positions"] = jnp.broadcast_to(rows, (*each, queries))
    query = jnp.broadcast_to(query, (keys, *query.shape))
    key = jnp.moveaxis(key, 1, 0)[:, :, None]
    partial = jaxattn.partial_attention(
        query, key, jnp.zeros_like(key), **options, implementation=implementation
    )
    return jnp.moveaxis(partial.lse, (0, 3), (3, 1))


def weights_of(query, key, options, implementation):
    """Weights `[B, N, T, S]` of any implementation: with unit vectors as values, out is them."""
    keys = key.shape[1]
    value = jnp.broadcast_to(jnp.eye(keys, dtype=key.dtype)[:, None], (*key.shape[:3], keys))
    out = jaxattn.attention(query, key, value, **options, implementation=implementation)
    return jnp.swapaxes(out, 1, 2)


@cases("RotaryEmbedding")
def test_rotary(case):
    """Their cosines and sines are random tables, not of any angle; a rotation is linear in both.

    At one radian everywhere (base 1, position 1) ours gives `cos 1 · x + sin 1 · R x`, which
    holds the pairing R; then `cos ⊗ x + sin ⊗ R x` is asked for.
    """
    x = jnp.asarray(case.inputs["X"].swapaxes(1, 2).astype(np.float64))
    interleaved = bool(case.attributes.get("interleaved"))
    size = case.attributes.get("rotary_embedding_dim") or x.shape[-1]
    ones = jnp.ones(x.shape[1], jnp.int32)
    turned = jaxattn.positions.rotary(x, ones, base=1.0, size=size, interleaved=interleaved)
    quarter = (turned - np.cos(1) * x) / np.sin(1)
    cos, sin = (table_of(case, name, interleaved, x.shape[-1]) for name in ("cos", "sin"))
    assert_within(case, jnp.swapaxes(cos * x + sin * quarter, 1, 2), "Y")
    np.testing.assert_array_equal(turned[..., size:], x[..., size:])


def table_of(case, name, interleaved, width):
    """Their table `[B, T, R/2]` as one number a feature, `[B, T, 1, H]`; past R cos 1 and sin 0."""
    table = case.inputs[f"{name}_cache"]
    if "position_ids" in case.inputs:
        table = table[case.inputs["position_ids"]]
    table = np.repeat(table, 2, -1) if interleaved else np.concatenate([table, table], -1)
    missing = [(0, 0), (0, 0), (0, width - table.shape[-1])]
    table = np.pad(table, missing, constant_values=float(name == "cos"))
    return table[:, :, None].astype(np.float64)


@cases("RotaryEmbedding")
def test_rotate(case):
    """Their tables as they are."""
    tables = (case.inputs[f"{name}_cache"] for name in ("cos", "sin"))
    if "position_ids" in case.inputs:
        tables = (table[case.inputs["position_ids"]] for table in tables)
    x, interleaved = case.inputs["X"].swapaxes(1, 2), bool(case.attributes.get("interleaved"))
    got = jaxattn.positions.rotate(x, *tables, interleaved=interleaved)
    assert_within(case, jnp.swapaxes(got, 1, 2), "Y")


@cases("TensorScatter")
def test_append(case):
    """Their cache `[B, N, C, F]` or `[B, C, F]`; example b has had `write_indices[b]` tokens."""
    past, update = (case.inputs[name] for name in ("past_cache", "update"))
    ours = [x.swapaxes(1, 2) if x.ndim == 4 else x[:, :, None] for x in (past, update)]
    length = case.inputs["write_indices"].astype(np.int32)
    old = np.broadcast_to(np.arange(past.shape[-2], dtype=np.int32), ours[0].shape[:2])
    wraps = case.attributes.get("mode") == "circular"
    cache = jaxattn.cache.KVCache(*map(jnp.asarray, (ours[0], ours[0], old, length)), wraps=wraps)
    cache = jaxattn.cache.append(cache, ours[1], ours[1])
    got = jnp.swapaxes(cache.key, 1, 2)
    np.testing.assert_array_equal(got.reshape(past.shape), case.outputs["present_cache"])
    np.testing.assert_array_equal(cache.length, length + update.shape[-2])


@pytest.mark.parametrize("name", recorded_calls())
def test_recorded_call(name, implementation):
    """Float64 to 1e-12; float32 within twice the error of a plain float32 softmax(QKᵀ)V."""
    call = recorded_calls()[name]
    wide = {field: x.astype(np.float64) for field, x in call.items() if x.ndim}
    out = attend_recorded(wide, call["scale"], implementation)
    assert np.abs(out - call["ref64"]).max() < 1e-12
    out = attend_recorded(call, call["scale"], implementation)
    allowed_error = np.abs(np.asarray(plain_float32(call)) - call["ref64"]).max()
    assert np.abs(out - call["ref64"]).max() <= 2 * allowed_error


def attend_recorded(call, scale, implementation):
    query, key, value = (jnp.asarray(call[x].swapaxes(1, 2)) for x in "qkv")
    options = {"bias": call.get("bias"), "sink": call.get("sinks"), "scale": float(scale)}
    out = calls.attention(query, key, value, **options, implementation=implementation)
    return np.asarray(out).swapaxes(1, 2)


def plain_float32(call):
    """`softmax(QKᵀ · scale + bias) V` in float32, with the sink as one more column.

    By JAX too: on processors with wide registers NumPy's float32 products round less often.
    """
    groups = call["q"].shape[1] // call["k"].shape[1]
    key, value = (jnp.repeat(jnp.asarray(call[x]), groups, axis=1) for x in "kv")
    scores = jnp.asarray(call["q"]) @ jnp.swapaxes(key, -1, -2) * jnp.float32(call["scale"])
    scores = scores + jnp.broadcast_to(call.get("bias", np.float32(0)), scores.shape)
    if "sinks" not in call:
        return jax.nn.softmax(scores) @ value
    column = jnp.asarray(call["sinks"])[None, :, None, None]
    column = jnp.broadcast_to(column, (*scores.shape[:-1], 1))
    return jax.nn.softmax(jnp.concatenate([scores, column], -1))[..., :-1] @ value


def as_given(out, want):
    """`[B, T, N, Hv]` in the layout of the case: `[B, N, T, Hv]` or `[B, T, N·Hv]`."""
    return np.swapaxes(out, 1, 2) if want.ndim == 4 else np.reshape(out, want.shape)


def assert_within(case, got, name, slack=0.0):
    """Within the case's tolerances (bfloat16: a unit in the last place), plus `slack`."""
    want = case.outputs[name]
    rtol = 2.0**-7 if want.dtype.name == "bfloat16" else case.rtol
    got, want = np.asarray(got).astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got == -np.inf, want == -np.inf)
    finite = np.isfinite(want)
    assert got.shape == want.shape and np.isfinite(got[finite]).all()
    excess = np.abs(np.where(finite, got - np.where(finite, want, 0), 0)) - slack
    assert (excess <= case.atol + rtol * np.abs(np.where(finite, want, 0))).all(), excess.max()
