"""What does not fit is listed, all of it, and nothing is changed."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn import interop
from jaxattn.nn import LanguageModel, MultiHeadAttention, Projections
from tests.interop.models import MODELS, gpt2
from tests.interop.trees import D, V, tree
from tests.nn.modules import shapes


def refusal(load):
    with pytest.raises(ValueError) as caught:
        load()
    return str(caught.value)


def test_all_problems_at_once():
    """Missing, unknown and misshapen arrays stand in one error, by name and shape."""
    given = tree("gpt2")
    del given["h.0.ln_1.bias"], given["wpe.weight"]
    given |= {"h.2.ln_1.bias": np.zeros(8), "extra": np.zeros((2, 3))}
    given["h.1.mlp.c_fc.weight"] = given["h.1.mlp.c_fc.weight"].T
    given["h.1.attn.c_attn.weight"] = np.zeros((8, 8))
    model = nnx.eval_shape(gpt2)
    said = refusal(lambda: interop.load(model, given, interop.GPT2))
    assert "6 problems" in said
    for line in [
        "missing: h.0.ln_1.bias [8], for stack.blocks.0.attention_norm.bias",
        "missing: wpe.weight [7, 8], for positions.embedding",
        "unknown: extra [2, 3]",
        "unknown: h.2.ln_1.bias [8]",
        "wrong shape: h.1.mlp.c_fc.weight must be [8, 16], got [16, 8]",
        "wrong shape: h.1.attn.c_attn.weight must be [D (P N H)] = [8, 24], got [8, 8]",
    ]:
        assert line in said


def test_nothing_is_changed():
    model = MultiHeadAttention(2, D, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    before = np.asarray(model.query.kernel[...])
    given = tree("torch_attention") | {"bias_k": np.zeros((1, 1, D))}
    said = refusal(lambda: interop.load(model, given, interop.TORCH_ATTENTION))
    assert "unknown: bias_k [1, 1, 8]" in said
    np.testing.assert_array_equal(model.query.kernel[...], before)
    interop.load(model, given, interop.TORCH_ATTENTION, ignore=("bias_*",))
    assert not np.array_equal(model.query.kernel[...], before)


def test_parameters_that_no_line_names():
    """They would keep their random numbers."""
    model = nnx.eval_shape(MODELS["dinov2"])
    said = refusal(lambda: interop.load(model, {}, interop.VIT))
    assert "no name for: encoder.blocks.0.attention_scale [8]" in said
    said = refusal(lambda: interop.save(MODELS["torch_attention"](), interop.GPT2))
    assert "8 problems" in said and "no name for: query.kernel [8, 2, 4]" in said


def test_options_that_differ():
    """Biases, grouped heads and layers are the model's; a tree that has others is refused."""
    layer = MultiHeadAttention(
        2, D, projections=Projections(use_bias=("query", "out")), rngs=nnx.Rngs(0)
    )
    given = tree("torch_attention")
    said = refusal(lambda: interop.load(layer, given, interop.TORCH_ATTENTION))
    assert "the model has no key.bias, value.bias" in said
    layer = MultiHeadAttention(2, D, num_kv_heads=1, rngs=nnx.Rngs(0))
    said = refusal(lambda: interop.load(layer, given, interop.TORCH_ATTENTION))
    assert "in_proj_weight has equal parts query.kernel, key.kernel, value.kernel" in said
    said = refusal(lambda: interop.load(layer, given | {"in_proj_bias": 1}, interop.LLAMA))
    assert "unknown: in_proj_bias []" in said
    scanned = LanguageModel(V, D, layers=1, num_heads=2, context=7, rngs=nnx.Rngs(0))
    said = refusal(lambda: interop.load(scanned, tree("gpt2"), interop.GPT2))
    assert "unknown: h.1.ln_1.weight [8]" in said


def test_a_tied_head_may_be_repeated_and_must_be_equal():
    model, given = nnx.eval_shape(gpt2), tree("gpt2")
    interop.load(model, given | {"lm_head.weight": given["wte.weight"]}, interop.GPT2)
    other = given | {"lm_head.weight": given["wte.weight"] + 1}
    said = refusal(lambda: interop.load(model, other, interop.GPT2))
    assert "lm_head.weight differs from wte.weight, the model ties them" in said
    untied = nnx.eval_shape(lambda: gpt2(tied=False))
    interop.load(untied, other, interop.GPT2)
    np.testing.assert_array_equal(untied.head[...], other["lm_head.weight"].T)
    assert interop.save(untied, interop.GPT2).keys() == other.keys()


def test_prefixes_and_buffers():
    """A head stands outside the prefix; masks and counters are no weights."""
    given = {f"transformer.{name}": x for name, x in tree("gpt2").items()}
    given["lm_head.weight"] = given["transformer.wte.weight"]
    given["transformer.h.0.attn.bias"] = np.ones((1, 1, 7, 7))
    model = nnx.eval_shape(gpt2)
    said = refusal(lambda: interop.load(model, given, interop.GPT2))
    assert "missing: wte.weight" in said and "unknown: transformer.wte.weight" in said
    interop.load(model, given, interop.GPT2, prefix="transformer.")
    saved = interop.save(model, interop.GPT2, prefix="transformer.")
    assert given.keys() - saved.keys() == {"lm_head.weight", "transformer.h.0.attn.bias"}


def test_numbers_are_cast_to_the_parameters():
    layer = MultiHeadAttention(2, D, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    interop.load(layer, tree("torch_attention"), interop.TORCH_ATTENTION)
    assert {dtype for _, dtype in shapes(lambda: layer).values()} == {"bfloat16"}
    want = tree("torch_attention")["out_proj.bias"].astype(jnp.bfloat16)
    np.testing.assert_array_equal(layer.out.bias[...], want)


class OnDevice:
    """What NumPy cannot read, as torch's tensors on a GPU."""

    def __array__(self, *_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_arrays_that_are_none():
    said = re.escape("x must convert to a NumPy array, got OnDevice (can't convert cuda:0")
    with pytest.raises(TypeError, match=said):
        interop.to_ours({"x": OnDevice()}, interop.GPT2, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("weight", "a line must be `theirs ours \\[axes\\]`, got 'weight'"),
        ("weight {a,b}.kernel D F -> F D", "the parts of an array need axes"),
        ("weight kernel D F -> F", "the same letters, got 'D F -> F'"),
        ("weight kernel D F", "the same letters, got 'D F'"),
        ("weight kernel D F -> (F D)", "our side has one letter for each axis"),
    ],
)
def test_lines_that_do_not_read(line, said):
    with pytest.raises(ValueError, match=said):
        interop.names(line)


def test_files(tmp_path):
    """As the library that defined the format writes them."""
    library = pytest.importorskip("safetensors.numpy")
    given = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], np.int8), "c": np.float32(2)}
    given["c"] = np.full((), 2.5, np.float32)
    library.save_file(given, tmp_path / "x.safetensors", metadata={"format": "np"})
    read = interop.read_safetensors(tmp_path / "x.safetensors")
    assert read.keys() == given.keys()
    for name, x in given.items():
        assert read[name].dtype == x.dtype
        np.testing.assert_array_equal(read[name], x)
    with pytest.raises(ValueError, match="repeats arrays of another file"):
        interop.read_safetensors(tmp_path / "x.safetensors", tmp_path / "x.safetensors")


def test_names_are_on_the_contents_page():
    assert sorted(interop.__all__) == interop.__all__
    assert all(name in interop.__doc__ for name in interop.__all__)
