"""Attention of Keras and samples of PyTorch, with gradients: as stored, and where installed."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal, Lengths
from tests import outside_references as outside
from tests.calls import jit
from tests.tolerances import GRADIENT, assert_close

SOURCES = ["stored", "installed"]


def stored(file):
    """Inputs and answers of a file, as arrays."""
    found = json.loads((outside.DATA / file).read_text())
    is_leaf = lambda x: isinstance(x, list)
    return (jax.tree.map(np.array, found[name], is_leaf=is_leaf) for name in ("inputs", "answers"))


def out_and_gradients(function, inputs):
    """`out` and a gradient for each operand, in one dict."""
    operands = {name: jnp.asarray(x) for name, x in inputs.items() if name != "cotangent"}

    @jit
    def both(operands, cotangent):
        out, pullback = jax.vjp(lambda operands: function(**operands), operands)
        return {"out": out} | pullback(cotangent)[0]

    return both(operands, jnp.asarray(inputs["cotangent"]))


def keras_answer(name, monkeypatch, folder):
    """On other numbers than the stored ones."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("KERAS_HOME", str(folder))
    pytest.importorskip("keras")
    inputs = outside.additive_inputs(1)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return inputs, outside.keras_additive(inputs, **outside.ADDITIVE[name])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", outside.ADDITIVE)
def test_additive_attention_is_that_of_keras(name, source, monkeypatch, tmp_path):
    if source == "installed":
        inputs, want = keras_answer(name, monkeypatch, tmp_path)
    else:
        inputs, answers = stored("keras.json")
        want = answers[name]
    masks = {
        "padded keys": Lengths(key=jnp.array([5, 2])),
        "padded queries and keys": Lengths(jnp.array([1, 3]), jnp.array([3, 4])),
        "in order": Causal("start"),
    }
    if name == "no scale":
        inputs = inputs | dict(vector=np.ones(7))
    function = lambda **x: jaxattn.additive_attention(**x, mask=masks.get(name))
    got = out_and_gradients(function, inputs)
    assert set(got) - set(want) == ({"vector"} if name == "no scale" else set())
    for part in want:  # on JAX, Keras rounds tanh to float32, whatever it is given
        assert_close(got[part], want[part], dtype="float32")


@pytest.mark.parametrize("source", SOURCES)
def test_samples_are_those_of_torch(source):
    if source == "installed":
        pytest.importorskip("torch")
        inputs = outside.deformable_inputs(1)
        want = outside.torch_deformable(inputs)
    else:
        inputs, want = stored("torch_grid_sample.json")
    function = lambda **x: jaxattn.deformable_attention(**x, shapes=outside.LEVELS)
    got = out_and_gradients(function, inputs)
    assert set(got) == set(want)
    for part in want:
        assert_close(got[part], want[part], GRADIENT)
