"""Attention inside trained networks that registry packages carry, as ONNX: equal numbers.

Needs the extra `pretrained`; skipped without it.
"""

import functools
import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from tests.calls import jit

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def folder(package):
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    return pathlib.Path(found.submodule_search_locations[0])


def constants(graph):
    """All numbers that a graph holds, by name."""
    found = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type in ("Reshape", "Identity") and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]].ravel()
    return found


# Squeeze-and-excitation: text detection, recognition and direction (PaddleOCR).

NETWORKS = {
    "ch_PP-OCRv4_det_infer.onnx": (10, (1, 3, 64, 96)),
    "ch_PP-OCRv4_rec_infer.onnx": (2, (1, 3, 48, 64)),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (9, (1, 3, 48, 192)),
}


def blocks(graph):
    """Of each block: its input, its parameters, the slope of its gate, and its output."""
    numbers, users = constants(graph), {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    for node in graph.node:
        if node.op_type == "GlobalAveragePool":
            block = follow(node, numbers, users)
            if block is not None:
                yield (node.input[0], *block)


def follow(node, numbers, users):
    """Two convolutions of 1 × 1 up to the gate and the product; None where it is no block."""
    image, kernels, biases = node.input[0], [], []
    while True:
        following = users.get(node.output[0], [])
        if not following:
            return None
        node = following[0]
        if node.op_type == "Conv":
            kernels.append(numbers[node.input[1]][:, :, 0, 0].T)
            if len(node.input) > 2:
                biases.append(numbers[node.input[2]])
        elif node.op_type == "Add" and kernels:
            biases.append(next(numbers[x] for x in node.input if x in numbers).ravel())
        elif node.op_type == "HardSigmoid":
            slope = next(a.f for a in node.attribute if a.name == "alpha")
        elif node.op_type == "Mul":
            return (*kernels, *biases, slope, node.output[0]) if image in node.input else None
        elif node.op_type != "Relu":
            return None


@pytest.mark.parametrize("name", NETWORKS)
def test_squeeze_and_excitation(name):
    """Every trained block's output, given its input, to 4e-6 of the largest number."""
    count, shape = NETWORKS[name]
    model = onnx.load(folder("rapidocr_onnxruntime") / "models" / name)
    found = list(blocks(model.graph))
    assert len(found) == count
    wanted = sorted({x for block in found for x in (block[0], block[-1])})
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(x) for x in wanted)
    session = runtime.InferenceSession(model.SerializeToString())
    picture = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    results = session.run(wanted, {session.get_inputs()[0].name: picture})
    values = dict(zip(wanted, results, strict=True))
    for image, w_reduce, w_expand, b_reduce, b_expand, slope, product in found:
        x, want = (values[k].reshape(*values[k].shape[:2], -1) for k in (image, product))
        x, *parameters = map(jnp.asarray, (x, w_reduce, w_expand, b_reduce, b_expand))
        gate = functools.partial(jaxattn.hard_sigmoid, slope=float(slope))
        out = jaxattn.channel_attention(jnp.swapaxes(x, 1, 2), *parameters, gate=gate)
        worst = np.abs(np.swapaxes(out, 1, 2) - want).max()
        assert worst <= 4e-6 * max(1, np.abs(want).max()), (product, worst)


# A GRU encoder and decoder with multiplicative attention: names in Latin letters.


def gru_weights(numbers, names, direction):
    """`GRUWeights` of one direction of an ONNX GRU, whose gates stand as update, reset, new."""
    from jaxattn.nn import GRUWeights

    bias, w_input, w_state = (numbers[x][direction] for x in names)

    def gates(x):
        update, reset, new = np.split(x, 3)
        return jnp.asarray(np.concatenate([reset, update, new]).T)

    b_input, b_state = map(gates, np.split(bias, 2))
    return GRUWeights(gates(w_input), gates(w_state), b_input, b_state)


def encode(numbers, names, tokens, padding):
    """Two bidirectional layers, and the first state: a bridge from the mean of what is there."""
    from jaxattn.nn import gru

    states = jnp.asarray(numbers["m.emb.weight"])[tokens]
    for layer in names:
        readings = [
            gru(states, gru_weights(numbers, layer, d), reverse=bool(d)).states for d in (0, 1)
        ]
        states = jnp.concatenate(readings, axis=-1)
    mean = jaxattn.channel.squeeze(states, jnp.asarray(~padding))
    bridge = jaxattn.project(
        mean, jnp.asarray(numbers["m.bridge.weight"].T), jnp.asarray(numbers["m.bridge.bias"])
    )
    return states, jnp.tanh(bridge)


def decode(numbers, token, memory, padding, hidden):
    """One token: two GRU layers, multiplicative attention, log-probabilities."""
    from jaxattn.nn import gru_step

    below, after = jnp.asarray(numbers["m.emb.weight"])[token], []
    for layer in (0, 1):
        w_input, w_state, b_input, b_state = (
            jnp.asarray(numbers[f"m.decoder.{kind}_l{layer}"]).T
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        inputs = jaxattn.project(below, w_input, b_input)
        below = gru_step(inputs, hidden[:, layer], w_state, b_state)
        after.append(below)
    query, mask = below[:, None], jnp.asarray(~padding)[:, None]
    weight = jnp.asarray(numbers["onnx::MatMul_165"])
    context = jaxattn.multiplicative_attention(query, memory, memory, weight, mask=mask)
    joined = jnp.concatenate([below, context[:, 0]], axis=-1)
    combine = (numbers["onnx::MatMul_166"], numbers["m.combine.bias"])
    combined = jnp.tanh(jaxattn.project(joined, *map(jnp.asarray, combine)))
    out = (numbers["m.out.weight"].T, numbers["m.out.bias"])
    logits = jaxattn.project(combined, *map(jnp.asarray, out))
    return jax.nn.log_softmax(logits), jnp.stack(after, axis=1)


NAMES = ["محمد", "فاطمة", "عبدالرحمن", "يوسف", "خديجة", "نور"]
END = 2


def token_ids(vocabulary):
    """Names as integers `[B, S]`: country and role unknown, letters, end; padded with 0."""
    prefix = [x for x in ("<UNK_COUNTRY>", "<ROLE_UNKNOWN>") if x in vocabulary]
    rows = [[*map(vocabulary.index, [*prefix, *name]), END] for name in NAMES]
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])


def test_gru_with_multiplicative_attention():
    """Each letter's log-probability to 1e-5, and so the same names."""
    pytest.importorskip("flax")
    place = folder("arabic_name_romanizer") / "resources"
    vocabulary = json.loads((place / "vocab.json").read_text("utf-8"))["tokens"]
    encoder, decoder = (onnx.load(place / f"{part}.onnx").graph for part in ("encoder", "decoder"))
    sessions = [runtime.InferenceSession(place / f"{p}.onnx") for p in ("encoder", "decoder")]
    layers = [node.input for node in encoder.node if node.op_type == "GRU"]
    names = [(node[3], node[1], node[2]) for node in layers]
    source = token_ids(vocabulary)
    padding = source == 0
    theirs, _, hidden = sessions[0].run(None, {"src": source, "src_mask": padding})
    numbers = constants(encoder)
    memory, first = jit(lambda tokens: encode(numbers, names, tokens, padding))(source)
    ours = jnp.stack([first, first], axis=1)
    assert np.abs(memory - theirs).max() < 1e-5 and np.abs(ours - hidden).max() < 1e-5

    numbers = constants(decoder)
    step = jit(lambda token, hidden: decode(numbers, token, memory, padding, hidden))
    token, ended, letters = np.ones(len(NAMES), int), np.zeros(len(NAMES), bool), []
    for _ in range(16):
        feed = {"prefix": token[:, None], "memory": theirs, "src_mask": padding, "hidden": hidden}
        want, hidden = sessions[1].run(None, feed)
        got, ours = step(jnp.asarray(token), ours)
        assert np.abs(got - want)[~ended].max(initial=0) < 1e-5
        token = np.asarray(got.argmax(axis=-1))
        np.testing.assert_array_equal(token[~ended], want.argmax(axis=-1)[~ended])
        ended = ended | (token == END)
        letters.append(np.where(ended, "", np.array(vocabulary)[token]))
    written = ["".join(name) for name in np.transpose(letters)]
    assert written == ["Mohamed", "Fatima", "Abdurrahman", "Youssef", "Khadidja", "Nour"]
