"""Other libraries' models in plain NumPy, float64, from their own arrays under their own names.

`w` is the tree. Independent of jaxattn: matrices as those libraries store them.
"""

import math

import numpy as np

from tests.interop.trees import LAYERS, D

HEADS = 2


def linear(x, w, name):
    """torch's: x Wᵀ + b."""
    bias = w.get(f"{name}.bias")
    out = x @ w[f"{name}.weight"].T
    return out if bias is None else out + bias


def norm(x, w, name, epsilon=1e-5):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def rms(x, scale):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale


def erf_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x):
    return np.maximum(x, 0)


def silu(x):
    return x / (1 + np.exp(-x))


def attend(query, key, value, causal=False, heads=HEADS):
    """`[B, T, heads * H]`, one head and one query at a time; fewer key heads are shared."""
    size = query.shape[-1] // heads
    shared = heads // (key.shape[-1] // size)
    out = np.zeros((*query.shape[:2], heads * size))
    for b, t, h in np.ndindex(*query.shape[:2], heads):
        here = slice(h * size, (h + 1) * size)
        there = slice(h // shared * size, (h // shared + 1) * size)
        last = t + 1 if causal else key.shape[1]
        scores = key[b, :last, there] @ query[b, t, here] / math.sqrt(size)
        weights = np.exp(scores - scores.max())
        out[b, t, here] = weights @ value[b, :last, there] / weights.sum()
    return out


def fused(x, context, w, name, causal=False):
    """torch's MultiheadAttention."""
    q, k, v = np.split(w[f"{name}in_proj_weight"], 3)
    bq, bk, bv = np.split(w[f"{name}in_proj_bias"], 3)
    heads = attend(x @ q.T + bq, context @ k.T + bk, context @ v.T + bv, causal)
    return linear(heads, w, f"{name}out_proj")


def torch_attention(w, x):
    return fused(x, x, w, "")


def torch_attention_separate(w, x, context):
    bq, bk, bv = np.split(w["in_proj_bias"], 3)
    q, k, v = (w[f"{part}_proj_weight"].T for part in "qkv")
    return linear(attend(x @ q + bq, context @ k + bk, context @ v + bv), w, "out_proj")


def post_layer(w, x, activation, name="", context=None):
    """torch's layers, as they are by default."""
    x = norm(x + fused(x, x, w, f"{name}self_attn.", context is not None), w, f"{name}norm1")
    if context is not None:
        x = norm(x + fused(x, context, w, f"{name}multihead_attn."), w, f"{name}norm2")
    x = x + linear(activation(linear(x, w, f"{name}linear1")), w, f"{name}linear2")
    return norm(x, w, f"{name}norm{2 if context is None else 3}")


def torch_encoder_layer(w, x):
    return post_layer(w, x, relu)


def torch_decoder_layer(w, x, context):
    """With norm_first."""
    x1 = norm(x, w, "norm1")
    x = x + fused(x1, x1, w, "self_attn.", causal=True)
    x = x + fused(norm(x, w, "norm2"), context, w, "multihead_attn.")
    return x + linear(relu(linear(norm(x, w, "norm3"), w, "linear1")), w, "linear2")


def torch_encoder(w, x):
    for i in range(LAYERS):
        x = post_layer(w, x, erf_gelu, f"layers.{i}.")
    return norm(x, w, "norm")


def torch_decoder(w, x, context):
    for i in range(LAYERS):
        x = post_layer(w, x, relu, f"layers.{i}.", context)
    return x


def gpt2(w, tokens):
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]

    def conv(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    for i in range(LAYERS):
        h = f"h.{i}"
        parts = np.split(conv(norm(x, w, f"{h}.ln_1"), f"{h}.attn.c_attn"), 3, axis=-1)
        x = x + conv(attend(*parts, causal=True), f"{h}.attn.c_proj")
        hidden = tanh_gelu(conv(norm(x, w, f"{h}.ln_2"), f"{h}.mlp.c_fc"))
        x = x + conv(hidden, f"{h}.mlp.c_proj")
    return norm(x, w, "ln_f") @ w["wte.weight"].T


def turned(x, size=4):
    """Rotary by halves: feature i and i + size/2 of each head are a complex number."""
    x = x.reshape(*x.shape[:-1], -1, size)
    z = x[..., : size // 2] + 1j * x[..., size // 2 :]
    angles = np.arange(x.shape[1])[:, None] / 10000 ** (2 * np.arange(size // 2) / size)
    z = z * np.exp(1j * angles)[:, None]
    return np.concatenate([z.real, z.imag], -1).reshape(*x.shape[:-2], -1)


def llama(w, tokens):
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        h = f"model.layers.{i}"
        x1 = rms(x, w[f"{h}.input_layernorm.weight"])
        q, k, v = (linear(x1, w, f"{h}.self_attn.{part}_proj") for part in "qkv")
        if f"{h}.self_attn.q_norm.weight" in w:
            scales = (w[f"{h}.self_attn.{part}_norm.weight"] for part in "qk")
            q, k = (
                rms(part.reshape(*part.shape[:2], -1, 4), scale).reshape(part.shape)
                for part, scale in zip((q, k), scales, strict=True)
            )
        heads = attend(turned(q), turned(k), v, causal=True)
        x = x + linear(heads, w, f"{h}.self_attn.o_proj")
        x1 = rms(x, w[f"{h}.post_attention_layernorm.weight"])
        gates, up = (linear(x1, w, f"{h}.mlp.{part}_proj") for part in ("gate", "up"))
        x = x + linear(silu(gates) * up, w, f"{h}.mlp.down_proj")
    return linear(rms(x, w["model.norm.weight"]), w, "lm_head")


def bert(w, tokens, layers=LAYERS, heads=HEADS):
    e = "embeddings"
    x = w[f"{e}.word_embeddings.weight"][tokens] + w[f"{e}.token_type_embeddings.weight"][0]
    x = x + w[f"{e}.position_embeddings.weight"][: tokens.shape[1]]
    x = norm(x, w, f"{e}.LayerNorm", 1e-12)
    for i in range(layers):
        h = f"encoder.layer.{i}"
        parts = (linear(x, w, f"{h}.attention.self.{part}") for part in ("query", "key", "value"))
        x = x + linear(attend(*parts, heads=heads), w, f"{h}.attention.output.dense")
        x = norm(x, w, f"{h}.attention.output.LayerNorm", 1e-12)
        hidden = erf_gelu(linear(x, w, f"{h}.intermediate.dense"))
        x = norm(x + linear(hidden, w, f"{h}.output.dense"), w, f"{h}.output.LayerNorm", 1e-12)
    return x


def albert(w, tokens, layers=LAYERS, heads=HEADS):
    e, h = "albert.embeddings", "albert.encoder.albert_layer_groups.0.albert_layers.0"
    x = w[f"{e}.word_embeddings.weight"][tokens] + w[f"{e}.token_type_embeddings.weight"][0]
    x = x + w[f"{e}.position_embeddings.weight"][: tokens.shape[1]]
    x = linear(norm(x, w, f"{e}.LayerNorm", 1e-12), w, "albert.encoder.embedding_hidden_mapping_in")
    for _ in range(layers):
        parts = (linear(x, w, f"{h}.attention.{part}") for part in ("query", "key", "value"))
        x = x + linear(attend(*parts, heads=heads), w, f"{h}.attention.dense")
        x = norm(x, w, f"{h}.attention.LayerNorm", 1e-12)
        x = x + linear(erf_gelu(linear(x, w, f"{h}.ffn")), w, f"{h}.ffn_output")
        x = norm(x, w, f"{h}.full_layer_layer_norm", 1e-12)
    return x


def patches(picture, kernel, bias, first, table):
    """Squares of 2 by 2, row by row, by a kernel `[D, channel, row, column]`."""
    rows = []
    for i, j in np.ndindex(picture.shape[1] // 2, picture.shape[2] // 2):
        square = picture[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        rows.append(np.einsum("bhwc,dchw->bd", square, kernel) + bias)
    x = np.stack([np.broadcast_to(first.ravel(), rows[0].shape), *rows], axis=1)
    return x + table


def vision(w, picture, name, layer, last, epsilon):
    e = f"{name}embeddings"
    kernel, bias = (w[f"{e}.patch_embeddings.projection.{x}"] for x in ("weight", "bias"))
    x = patches(picture, kernel, bias, w[f"{e}.cls_token"], w[f"{e}.position_embeddings"])
    for i in range(LAYERS):
        h = f"{name}encoder.layer.{i}"
        first, second, up, down = layer
        x1 = norm(x, w, f"{h}.{first}", epsilon)
        parts = (linear(x1, w, f"{h}.attention.attention.{y}") for y in ("query", "key", "value"))
        out = linear(attend(*parts), w, f"{h}.attention.output.dense")
        x = x + out * w.get(f"{h}.layer_scale1.lambda1", 1.0)
        hidden = erf_gelu(linear(norm(x, w, f"{h}.{second}", epsilon), w, f"{h}.{up}"))
        x = x + linear(hidden, w, f"{h}.{down}") * w.get(f"{h}.layer_scale2.lambda1", 1.0)
    return norm(x, w, last, epsilon)


def vit(w, picture):
    layer = ("layernorm_before", "layernorm_after", "intermediate.dense", "output.dense")
    x = vision(w, picture, "vit.", layer, "vit.layernorm", 1e-12)
    return linear(x[:, 0], w, "classifier")


def dinov2(w, picture):
    layer = ("norm1", "norm2", "mlp.fc1", "mlp.fc2")
    return vision(w, picture, "", layer, "layernorm", 1e-6)


def timm(w, picture):
    kernel, bias = w["patch_embed.proj.weight"], w["patch_embed.proj.bias"]
    x = patches(picture, kernel, bias, w["cls_token"], w["pos_embed"])
    for i in range(LAYERS):
        h = f"blocks.{i}"
        parts = np.split(linear(norm(x, w, f"{h}.norm1", 1e-6), w, f"{h}.attn.qkv"), 3, axis=-1)
        x = x + linear(attend(*parts), w, f"{h}.attn.proj") * w[f"{h}.ls1.gamma"]
        hidden = erf_gelu(linear(norm(x, w, f"{h}.norm2", 1e-6), w, f"{h}.mlp.fc1"))
        x = x + linear(hidden, w, f"{h}.mlp.fc2") * w[f"{h}.ls2.gamma"]
    return norm(x, w, "norm", 1e-6)


def convolved(x, w, name, stride):
    """Three frames at a time, with zeros beyond both ends."""
    x = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    kernel = w[f"{name}.weight"]
    windows = [x[:, t : t + 3] for t in range(0, x.shape[1] - 2, stride)]
    out = np.stack([np.einsum("bwc,dcw->bd", window, kernel) for window in windows], axis=1)
    return erf_gelu(out + w[f"{name}.bias"])


def whisper_layer(w, x, h, context=None):
    def attention(x, y, kind, causal=False):
        parts = [linear(z, w, f"{h}.{kind}.{n}_proj") for z, n in ((x, "q"), (y, "k"), (y, "v"))]
        return linear(attend(*parts, causal=causal), w, f"{h}.{kind}.out_proj")

    x1 = norm(x, w, f"{h}.self_attn_layer_norm")
    x = x + attention(x1, x1, "self_attn", context is not None)
    if context is not None:
        x = x + attention(norm(x, w, f"{h}.encoder_attn_layer_norm"), context, "encoder_attn")
    hidden = erf_gelu(linear(norm(x, w, f"{h}.final_layer_norm"), w, f"{h}.fc1"))
    return x + linear(hidden, w, f"{h}.fc2")


def whisper(w, spectrogram, tokens):
    x = convolved(spectrogram, w, "model.encoder.conv1", 1)
    x = convolved(x, w, "model.encoder.conv2", 2) + w["model.encoder.embed_positions.weight"]
    for i in range(LAYERS):
        x = whisper_layer(w, x, f"model.encoder.layers.{i}")
    context = norm(x, w, "model.encoder.layer_norm")
    table = w["model.decoder.embed_tokens.weight"]
    x = table[tokens] + w["model.decoder.embed_positions.weight"][: tokens.shape[1]]
    for i in range(LAYERS):
        x = whisper_layer(w, x, f"model.decoder.layers.{i}", context)
    return norm(x, w, "model.decoder.layer_norm") @ table.T


qwen2 = qwen3 = llama
assert D % HEADS == 0
