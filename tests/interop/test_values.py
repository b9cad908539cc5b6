"""Weights of other libraries give their numbers here, and come back exactly."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn import interop
from jaxattn.masks import Causal
from tests.interop import forward
from tests.interop.models import MODELS, gpt2
from tests.interop.trees import SHAPES, inputs, tree
from tests.nn.modules import run
from tests.tolerances import error

NAMES = {name: getattr(interop, name.upper(), interop.LLAMA) for name in SHAPES}
TORCH = json.loads((pathlib.Path(__file__).parent.parent / "data" / "interop.json").read_text())

# Two layers of sums of at most 16 numbers of order 1, in float64; torch's are kept to 12 digits,
# and Llama's norms and angles run in float32 there, whatever the rest does.
NUMPY, TORCH_DIGITS, TORCH_FLOAT32 = 2e-13, 3e-12, 1e-6


def loaded(name):
    """The model with the tree's weights."""
    model = nnx.eval_shape(MODELS[name])
    interop.load(model, tree(name), NAMES[name])
    return model


def call(model, *given):
    """All tokens of a vision transformer without a head, else the output."""
    if hasattr(model, "tokens") and model.head is None:
        return model.tokens(*given)
    return model(*given)


def decoder_call(model, *given):
    return model(*given, mask=Causal())


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_numbers(name):
    """As plain NumPy computes them from the tree, and as PyTorch did."""
    given = inputs(name)
    function = decoder_call if name == "torch_decoder_layer" else call
    got = run(function, loaded(name), *map(jnp.asarray, given))
    assert error(got, getattr(forward, name)(tree(name), *given)) < NUMPY
    if name in TORCH:
        single = NAMES[name] is interop.LLAMA
        tolerance = TORCH_FLOAT32 if single else TORCH_DIGITS
        assert error(got, np.array(TORCH[name])) < tolerance


def test_torch_gave_all_but_timm():
    assert set(SHAPES) - set(TORCH) == {"timm"}


@pytest.mark.parametrize("name", SHAPES)
def test_and_back(name):
    saved, given = interop.save(loaded(name), NAMES[name]), tree(name)
    assert saved.keys() == given.keys()
    for key, x in given.items():
        np.testing.assert_array_equal(saved[key], x, err_msg=key)


def test_a_scanned_stack_has_the_same_tree():
    """One array for all layers here, one for each there."""
    model = nnx.eval_shape(lambda: gpt2(scan=True))
    interop.load(model, tree("gpt2"), interop.GPT2)
    saved = interop.save(model, interop.GPT2)
    for key, x in tree("gpt2").items():
        np.testing.assert_array_equal(saved[key], x, err_msg=key)
    tokens = jnp.asarray(inputs("gpt2")[0])
    want = forward.gpt2(tree("gpt2"), np.asarray(tokens))
    assert error(run(call, model, tokens), want) < NUMPY
