"""glassllm: two small language models with grouped heads and rotary positions.

The package is NumPy only, and traces every step of its own forward pass.
"""

import functools
import json
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from experiments import pretrained
from jaxattn import interop
from jaxattn.nn import (
    FeedForward,
    LanguageModel,
    MultiHeadAttention,
    Projections,
    ResidualBlock,
    RMSNorm,
    Scoring,
    Stack,
)
from jaxattn.positions import Rotary

BLOCK = """
    norm1.gamma   attention_norm.scale
    attn.W_Q      attention.query.kernel      D (N H) -> D N H
    attn.W_K      attention.key.kernel        D (K H) -> D K H
    attn.W_V      attention.value.kernel      D (K H) -> D K H
    attn.W_O      attention.out.kernel        (N H) D -> N H D
    norm2.gamma   feed_forward_norm.scale
    ffn.W1        feed_forward.gate.kernel
    ffn.W3        feed_forward.hidden.kernel
    ffn.W2        feed_forward.out.kernel
"""

NAMES = interop.names(
    "E embed.embedding\n norm_f.gamma stack.norm.scale\n"
    + interop.within(BLOCK, "blocks.*.", "stack.blocks.*.")
)


class Pretrained(NamedTuple):
    """Ours, and theirs with its tokenizer."""

    model: LanguageModel
    reference: Any
    tokenizer: Any


def load(language: str = "en", dtype: Any = "float32") -> Pretrained:
    """The English or the Portuguese model ("pt"), of 0.85 million parameters.

    Raises:
      ModuleNotFoundError: glassllm is not installed.
    """
    glassllm = pretrained.package("glassllm")
    reference, tokenizer = glassllm.load_pretrained(language)
    with np.load(pretrained.folder("glassllm") / "weights" / f"{language}.npz") as file:
        tree = dict(file)
    config = json.loads(str(tree.pop("__config__")))
    model = nnx.eval_shape(functools.partial(language_model, config, dtype))
    interop.load(model, tree, NAMES)
    return Pretrained(model, reference, tokenizer)


def language_model(config: dict[str, Any], dtype: Any) -> LanguageModel:
    """A model of these sizes: RMSNorm, SwiGLU, no biases, interleaved rotary, tied head."""
    options: dict[str, Any] = dict(param_dtype=dtype, rngs=nnx.Rngs(0))
    width = config["d_model"]
    norm = functools.partial(RMSNorm, epsilon=config["eps"], param_dtype=dtype)

    def block(rngs: nnx.Rngs) -> ResidualBlock:
        attention = MultiHeadAttention(
            config["n_heads"],
            width,
            num_kv_heads=config["n_kv_heads"],
            projections=Projections(use_bias=False),
            scoring=Scoring(rotary=Rotary(base=config["rope_base"], interleaved=True)),
            **options,
        )
        swiglu = FeedForward(
            width, 8 * width // 3, activation=jax.nn.silu, gated=True, use_bias=False, **options
        )
        return ResidualBlock(attention, swiglu, make_norm=norm)

    stack = Stack(config["n_layers"], block, make_norm=norm, rngs=nnx.Rngs(0))
    sizes = dict(context=config["max_len"], positions="none")
    return LanguageModel(config["vocab_size"], width, stack=stack, **sizes, **options)
