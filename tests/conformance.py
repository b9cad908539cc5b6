"""Outside cases as calls of ours: reading the files of `JAXATTN_CONFORMANCE`, and their dialect.

The files come with their own README; arrays are `[B, N, T, H]`, or `[B, T, N·H]` with head counts.
"""

import functools
import json
import os
import pathlib
from typing import NamedTuple

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxattn.masks import Causal, Dense, Lengths, SlidingWindow

FOLDER = os.environ.get("JAXATTN_CONFORMANCE")


class Case(NamedTuple):
    name: str
    operator: str
    attributes: dict
    rtol: float
    atol: float
    inputs: dict
    outputs: dict


@functools.cache
def onnx_cases():
    """Every case of `onnx_cases.npz`; none where the folder is not given."""
    if FOLDER is None:
        return ()
    with np.load(pathlib.Path(FOLDER) / "onnx_cases.npz") as stored:
        index = json.loads(str(stored["__index__"]))
        return tuple(_case(stored, i, entry) for i, entry in enumerate(index))


def _case(stored, i, entry):
    arrays = {
        side: {name: _decode(stored[f"{i}.{side}.{name}"], dtype) for name, dtype in named.items()}
        for side, named in (("inputs", entry["inputs"]), ("outputs", entry["outputs"]))
    }
    return Case(entry["name"], entry["op"], entry["attrs"], entry["rtol"], entry["atol"], **arrays)


def _decode(array, dtype):
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


@functools.cache
def recorded_calls():
    """`{"gpt2.0": {"q": ..., "ref64": ...}, ...}` of `hf/*.npz`."""
    calls = {}
    for path in sorted(pathlib.Path(FOLDER or "/nonexistent").glob("hf/*.npz")):
        with np.load(path) as stored:
            for name in stored.files:
                number, field = name.split(".")
                calls.setdefault(f"{path.stem}.{number}", {})[field] = stored[name]
    return calls


class Call(NamedTuple):
    """An Attention case as ours: query, key and value `[B, T, N, H]`, and keyword arguments."""

    query: jnp.ndarray
    key: jnp.ndarray
    value: jnp.ndarray
    options: dict


def attention_call(case):
    """The case's arguments in this library's words."""
    attributes, inputs = case.attributes, case.inputs
    query = tokens_first(inputs["Q"], attributes.get("q_num_heads"))
    key, value = (
        tokens_first(inputs[x], attributes.get("kv_num_heads"), inputs.get(past))
        for x, past in (("K", "past_key"), ("V", "past_value"))
    )
    queries, keys = query.shape[1], key.shape[1]
    options = {"scale": attributes.get("scale"), "softcap": attributes.get("softcap") or None}
    allowed, options["bias"] = mask_and_bias(inputs.get("attn_mask"), keys)
    masks = []
    windows = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    ordered = attributes.get("is_causal") or windows != [-1, -1]
    lengths = inputs.get("nonpad_kv_seqlen")
    if lengths is not None:
        masks.append(Lengths(key=jnp.asarray(lengths)))
    if lengths is not None and ordered:  # without order no query stands anywhere
        options["query_positions"] = jnp.asarray(lengths[:, None] - queries + np.arange(queries))
    if "past_key" in inputs:  # whatever else is cached: the first query follows the past
        options["query_positions"] = inputs["past_key"].shape[2] + jnp.arange(queries)
    align = None if "query_positions" in options else "start"
    if attributes.get("is_causal"):
        masks.append(Causal(align))
    if windows != [-1, -1]:
        left, right = (None if border < 0 else border for border in windows)
        masks.append(SlidingWindow(left, right, align))
    if allowed is not None and masks:
        masks.append(Dense(jnp.broadcast_to(allowed, (*allowed.shape[:-2], queries, keys))))
    options["mask"] = functools.reduce(lambda a, b: a & b, masks) if masks else allowed
    return Call(query, key, value, options)


def tokens_first(x, heads=None, past=None):
    """`[B, N, T, H]` or `[B, T, N·H]`, after a past `[B, N, P, H]`, as `[B, P+T, N, H]`."""
    x = x.swapaxes(1, 2) if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1)
    past = x[:, :0] if past is None else past.swapaxes(1, 2)
    return jnp.asarray(np.concatenate([past, x], axis=1))


def mask_and_bias(given, keys):
    """`attn_mask` as a boolean array or as a bias, padded to S with "not allowed"."""
    if given is None:
        return None, None
    given = given.reshape((1,) * (2 - given.ndim) + given.shape)
    given = given[None] if given.ndim == 3 else given
    missing = [(0, 0)] * (given.ndim - 1) + [(0, keys - given.shape[-1])]
    if given.dtype == bool:
        return jnp.asarray(np.pad(given, missing, constant_values=False)), None
    return None, jnp.asarray(np.pad(given, missing, constant_values=-np.inf))
