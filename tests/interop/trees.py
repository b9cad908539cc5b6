"""Small random trees with the names and shapes of other libraries, in float64.

Written from those libraries' documentation, not from the maps: width 8, two heads, two layers.
"""

import numpy as np

D, F, V, S, LAYERS = 8, 16, 11, 7, 2


def linear(name, inputs, outputs, bias=True):
    """torch's Linear: `[out, in]`."""
    shapes = {f"{name}.weight": (outputs, inputs)}
    return shapes | ({f"{name}.bias": (outputs,)} if bias else {})


def norm(name):
    return {f"{name}.weight": (D,), f"{name}.bias": (D,)}


def fused_attention(name):
    """torch's MultiheadAttention."""
    return {
        f"{name}in_proj_weight": (3 * D, D),
        f"{name}in_proj_bias": (3 * D,),
        **linear(f"{name}out_proj", D, D),
    }


def separate_attention():
    """torch's MultiheadAttention with kdim and vdim of 5."""
    return {
        "q_proj_weight": (D, D),
        "k_proj_weight": (D, 5),
        "v_proj_weight": (D, 5),
        "in_proj_bias": (3 * D,),
        **linear("out_proj", D, D),
    }


def torch_encoder_layer(name=""):
    return {
        **fused_attention(f"{name}self_attn."),
        **linear(f"{name}linear1", D, F),
        **linear(f"{name}linear2", F, D),
        **norm(f"{name}norm1"),
        **norm(f"{name}norm2"),
    }


def torch_decoder_layer(name=""):
    cross = fused_attention(f"{name}multihead_attn.")
    return torch_encoder_layer(name) | cross | norm(f"{name}norm3")


def stacked(layer, last=True):
    """torch's TransformerEncoder and TransformerDecoder."""
    shapes = {k: x for i in range(LAYERS) for k, x in layer(f"layers.{i}.").items()}
    return shapes | (norm("norm") if last else {})


def gpt2(name="", tied=True):
    """The matrices are `[in, out]`."""
    shapes = {f"{name}wte.weight": (V, D), f"{name}wpe.weight": (S, D)}
    for i in range(LAYERS):
        h = f"{name}h.{i}"
        shapes |= {**norm(f"{h}.ln_1"), **norm(f"{h}.ln_2")}
        for part, (inputs, outputs) in {
            "attn.c_attn": (D, 3 * D),
            "attn.c_proj": (D, D),
            "mlp.c_fc": (D, F),
            "mlp.c_proj": (F, D),
        }.items():
            shapes |= {f"{h}.{part}.weight": (inputs, outputs), f"{h}.{part}.bias": (outputs,)}
    shapes |= norm(f"{name}ln_f")
    return shapes if tied else shapes | {"lm_head.weight": (V, D)}


def llama(biases=False, qk_norms=False):
    """Two query heads of 4, one key head."""
    shapes = {"model.embed_tokens.weight": (V, D)}
    for i in range(LAYERS):
        h = f"model.layers.{i}"
        sizes = {"q_proj": D, "k_proj": 4, "v_proj": 4}
        for part, outputs in sizes.items():
            shapes |= linear(f"{h}.self_attn.{part}", D, outputs, bias=biases)
        shapes |= linear(f"{h}.self_attn.o_proj", D, D, bias=False)
        if qk_norms:
            shapes |= {f"{h}.self_attn.{part}_norm.weight": (4,) for part in "qk"}
        shapes |= {
            **linear(f"{h}.mlp.gate_proj", D, F, bias=False),
            **linear(f"{h}.mlp.up_proj", D, F, bias=False),
            **linear(f"{h}.mlp.down_proj", F, D, bias=False),
            f"{h}.input_layernorm.weight": (D,),
            f"{h}.post_attention_layernorm.weight": (D,),
        }
    return shapes | {"model.norm.weight": (D,), "lm_head.weight": (V, D)}


def bert():
    shapes = {
        "embeddings.word_embeddings.weight": (V, D),
        "embeddings.position_embeddings.weight": (S, D),
        "embeddings.token_type_embeddings.weight": (2, D),
        **norm("embeddings.LayerNorm"),
    }
    for i in range(LAYERS):
        h = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            shapes |= linear(f"{h}.attention.self.{part}", D, D)
        shapes |= {
            **linear(f"{h}.attention.output.dense", D, D),
            **norm(f"{h}.attention.output.LayerNorm"),
            **linear(f"{h}.intermediate.dense", D, F),
            **linear(f"{h}.output.dense", F, D),
            **norm(f"{h}.output.LayerNorm"),
        }
    return shapes


def albert():
    """Embeddings of 4 features, and one layer for all."""
    e, h = "albert.embeddings", "albert.encoder.albert_layer_groups.0.albert_layers.0"
    shapes = {
        f"{e}.word_embeddings.weight": (V, 4),
        f"{e}.position_embeddings.weight": (S, 4),
        f"{e}.token_type_embeddings.weight": (2, 4),
        f"{e}.LayerNorm.weight": (4,),
        f"{e}.LayerNorm.bias": (4,),
        **linear("albert.encoder.embedding_hidden_mapping_in", 4, D),
        **norm(f"{h}.full_layer_layer_norm"),
        **norm(f"{h}.attention.LayerNorm"),
        **linear(f"{h}.ffn", D, F),
        **linear(f"{h}.ffn_output", F, D),
    }
    for part in ("query", "key", "value", "dense"):
        shapes |= linear(f"{h}.attention.{part}", D, D)
    return shapes


def vit(name="vit.", dino=False):
    """Pictures of 4 by 6, patches of 2: six of them and the class token; DINOv2's are square."""
    shapes = {
        f"{name}embeddings.cls_token": (1, 1, D),
        f"{name}embeddings.position_embeddings": (1, 5 if dino else 7, D),
        f"{name}embeddings.patch_embeddings.projection.weight": (D, 3, 2, 2),
        f"{name}embeddings.patch_embeddings.projection.bias": (D,),
        **norm(f"{name}layernorm"),
    }
    for i in range(LAYERS):
        h = f"{name}encoder.layer.{i}"
        for part in ("query", "key", "value"):
            shapes |= linear(f"{h}.attention.attention.{part}", D, D)
        shapes |= linear(f"{h}.attention.output.dense", D, D)
        shapes |= dinov2_rest(h) if dino else vit_rest(h)
    return shapes if dino else shapes | linear("classifier", D, 3)


def vit_rest(h):
    return {
        **norm(f"{h}.layernorm_before"),
        **norm(f"{h}.layernorm_after"),
        **linear(f"{h}.intermediate.dense", D, F),
        **linear(f"{h}.output.dense", F, D),
    }


def dinov2_rest(h):
    return {
        **norm(f"{h}.norm1"),
        **norm(f"{h}.norm2"),
        **linear(f"{h}.mlp.fc1", D, F),
        **linear(f"{h}.mlp.fc2", F, D),
        f"{h}.layer_scale1.lambda1": (D,),
        f"{h}.layer_scale2.lambda1": (D,),
    }


def timm():
    """The same picture; one matrix for query, key and value."""
    shapes = {
        "cls_token": (1, 1, D),
        "pos_embed": (1, 7, D),
        "patch_embed.proj.weight": (D, 3, 2, 2),
        "patch_embed.proj.bias": (D,),
        **norm("norm"),
    }
    for i in range(LAYERS):
        h = f"blocks.{i}"
        shapes |= {
            **norm(f"{h}.norm1"),
            **norm(f"{h}.norm2"),
            **linear(f"{h}.attn.qkv", D, 3 * D),
            **linear(f"{h}.attn.proj", D, D),
            **linear(f"{h}.mlp.fc1", D, F),
            **linear(f"{h}.mlp.fc2", F, D),
            f"{h}.ls1.gamma": (D,),
            f"{h}.ls2.gamma": (D,),
        }
    return shapes


def whisper():
    """Ten frames of five bands; tokens after them."""
    shapes = {
        "model.encoder.conv1.weight": (D, 5, 3),
        "model.encoder.conv1.bias": (D,),
        "model.encoder.conv2.weight": (D, D, 3),
        "model.encoder.conv2.bias": (D,),
        "model.encoder.embed_positions.weight": (5, D),
        "model.decoder.embed_tokens.weight": (V, D),
        "model.decoder.embed_positions.weight": (S, D),
    }
    for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "encoder"])):
        for i in range(LAYERS):
            h = f"model.{side}.layers.{i}"
            for kind in attentions:
                for part in ("q", "k", "v", "out"):
                    shapes |= linear(f"{h}.{kind}_attn.{part}_proj", D, D, bias=part != "k")
                shapes |= norm(f"{h}.{kind}_attn_layer_norm")
            shapes |= {
                **linear(f"{h}.fc1", D, F),
                **linear(f"{h}.fc2", F, D),
                **norm(f"{h}.final_layer_norm"),
            }
        shapes |= norm(f"model.{side}.layer_norm")
    return shapes


SHAPES = {
    "torch_attention": fused_attention(""),
    "torch_attention_separate": separate_attention(),
    "torch_encoder_layer": torch_encoder_layer(),
    "torch_decoder_layer": torch_decoder_layer(),
    "torch_encoder": stacked(torch_encoder_layer),
    "torch_decoder": stacked(torch_decoder_layer, last=False),
    "gpt2": gpt2(),
    "llama": llama(),
    "qwen2": llama(biases=True),
    "qwen3": llama(qk_norms=True),
    "bert": bert(),
    "albert": albert(),
    "vit": vit(),
    "dinov2": vit("", dino=True),
    "timm": timm(),
    "whisper": whisper(),
}


def tree(name):
    """Normal numbers of deviation 0.5, drawn in the order of the names."""
    rng = np.random.default_rng(0)
    return {k: 0.5 * rng.standard_normal(shape) for k, shape in sorted(SHAPES[name].items())}


def inputs(name):
    """What each model is called with."""
    rng = np.random.default_rng(1)
    x, context = rng.standard_normal((2, 4, D)), rng.standard_normal((2, 6, D))
    tokens = rng.integers(0, V, (2, 5))
    if name == "torch_attention_separate":
        return x, context[..., :5]
    if name in ("torch_decoder_layer", "torch_decoder"):
        return x, context
    if name.startswith("torch"):
        return (x,)
    if name == "whisper":
        return rng.standard_normal((2, 10, 5)), tokens
    if name in ("vit", "dinov2", "timm"):
        return (rng.standard_normal((2, 4, 4 if name == "dinov2" else 6, 3)),)
    return (tokens,)
