"""Writes tests/data/interop.json: outputs of PyTorch and transformers for the trees of trees.py.

Run by hand, where both are installed: python -m tests.interop.torch_references
"""

import json
import pathlib

import numpy as np
import torch
import transformers as hf
from torch import nn

from tests.interop.trees import LAYERS, D, F, S, V, inputs, tree

SIZES = dict(d_model=D, nhead=2, dim_feedforward=F, dropout=0.0, batch_first=True)
COMMON = dict(hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=2, vocab_size=V)
BERT = dict(COMMON, intermediate_size=F, max_position_embeddings=S, pad_token_id=None)
LLAMA = dict(
    COMMON,
    num_key_value_heads=1,
    head_dim=4,
    intermediate_size=F,
    max_position_embeddings=S,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
VIT = dict(image_size=(4, 6), patch_size=2, num_labels=3)


def whisper():
    sides = {
        f"{x}_{y}": n
        for x in ("encoder", "decoder")
        for y, n in dict(layers=LAYERS, attention_heads=2, ffn_dim=F).items()
    }
    config = hf.WhisperConfig(
        vocab_size=V, d_model=D, num_mel_bins=5, max_source_positions=5, max_target_positions=S,
        **sides, **TOKENS, decoder_start_token_id=1,
    )  # fmt: skip
    return hf.WhisperForConditionalGeneration(config)


MODELS = {
    "torch_attention": lambda: nn.MultiheadAttention(D, 2, batch_first=True),
    "torch_attention_separate": lambda: nn.MultiheadAttention(
        D, 2, kdim=5, vdim=5, batch_first=True
    ),
    "torch_encoder_layer": lambda: nn.TransformerEncoderLayer(**SIZES),
    "torch_decoder_layer": lambda: nn.TransformerDecoderLayer(**SIZES, norm_first=True),
    "torch_encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**SIZES, activation="gelu"), LAYERS, nn.LayerNorm(D)
    ),
    "torch_decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(**SIZES), LAYERS),
    "gpt2": lambda: hf.GPT2Model(
        hf.GPT2Config(vocab_size=V, n_positions=S, n_embd=D, n_layer=LAYERS, n_head=2, n_inner=F)
    ),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**LLAMA)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**LLAMA)),
    "bert": lambda: hf.BertModel(hf.BertConfig(**BERT), add_pooling_layer=False),
    "albert": lambda: hf.AlbertModel(
        hf.AlbertConfig(**BERT, embedding_size=4, hidden_act="gelu"), add_pooling_layer=False
    ),
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**BERT, **VIT)),
    "dinov2": lambda: hf.Dinov2Model(
        hf.Dinov2Config(**COMMON, image_size=4, patch_size=2, mlp_ratio=2)
    ),
    "whisper": whisper,
}


# Files keep the names that transformers 5 gives up in its code: it renames while loading, so do we.
RENAMED = {
    "attention.query": "q_proj",
    "attention.key": "k_proj",
    "attention.value": "v_proj",
    "attention.output.dense": "attention.o_proj",
}
RENAMED_VIT = RENAMED | {
    "encoder.layer": "layers",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


def renamed(name, key):
    """A file's name as transformers 5 has it in its code."""
    for old, new in {"vit": RENAMED_VIT, "dinov2": RENAMED}.get(name, {}).items():
        key = key.replace(old, new)
    return key.removeprefix("albert.")


def output(name, model):
    """The model's answer to the inputs of its name."""
    given = [torch.tensor(x) for x in inputs(name)]
    if name.startswith("torch_attention"):
        return model(given[0], given[-1], given[-1])[0]
    if name in ("torch_decoder_layer", "torch_decoder"):
        later = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
        return model(*given, tgt_mask=later)
    if name.startswith("torch"):
        return model(*given)
    if name == "whisper":
        return model(given[0].mT, decoder_input_ids=given[1]).logits
    if name in ("vit", "dinov2"):
        out = model(given[0].permute(0, 3, 1, 2))
        return out.logits if name == "vit" else out.last_hidden_state
    out = model(given[0])
    if name == "gpt2":
        return out.last_hidden_state @ model.wte.weight.T
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def main():
    found = {"torch": torch.__version__, "transformers": hf.__version__}
    torch.set_default_dtype(torch.float64)
    for name in MODELS:
        model = MODELS[name]().double().eval()
        numbers = {renamed(name, k): torch.tensor(x) for k, x in tree(name).items()}
        missing, unexpected = model.load_state_dict(numbers, strict=False)
        print(name, "missing", missing, "unexpected", unexpected)
        with torch.no_grad():
            found[name] = np.round(output(name, model).numpy(), 12).tolist()
    path = pathlib.Path(__file__).parent.parent / "data" / "interop.json"
    path.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
