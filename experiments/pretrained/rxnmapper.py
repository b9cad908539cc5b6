"""rxnmapper: which atom of a product was which before. An ALBERT of 12 layers, 8 heads, width 256.

It was trained on reactions alone, and nobody told it about atoms: one head of its last layer
attends from each atom of the product to where it came from. That map is what it is used for.
"""

import collections
import functools
import io
import json
import pickle
import re
from pathlib import Path
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

LAYER, HEAD = 11, 5  # the ones that map atoms
TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|.")
TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


def place() -> Path:
    """The folder of the weights."""
    models = pretrained.folder("rxnmapper") / "models" / "transformers"
    return models / "albert_heads_8_uspto_all_1310k"


def load(dtype: Any = "float32") -> TextEncoder:
    """The model, of 0.8 million parameters, one layer used 12 times.

    Raises:
      ModuleNotFoundError: rxnmapper is not installed.
    """
    config = json.loads((place() / "config.json").read_text())
    model = nnx.eval_shape(functools.partial(text_encoder, config, dtype))
    tree = read_torch(place() / "pytorch_model.bin")
    interop.load(model, tree, interop.ALBERT, ignore=("albert.pooler.*", "predictions.*"))
    return model


def text_encoder(config: dict[str, Any], dtype: Any) -> TextEncoder:
    """An ALBERT of these sizes: post-norm, GELU by erf."""
    options: dict[str, Any] = dict(param_dtype=dtype, rngs=nnx.Rngs(0))
    width, hidden = config["hidden_size"], config["intermediate_size"]
    norm = functools.partial(LayerNorm, epsilon=config["layer_norm_eps"], param_dtype=dtype)
    gelu = functools.partial(jax.nn.gelu, approximate=False)
    attention = MultiHeadAttention(config["num_attention_heads"], width, **options)
    feed_forward = FeedForward(width, hidden, activation=gelu, **options)
    one = ResidualBlock(attention, feed_forward, norm="post", make_norm=norm)
    layers = config["num_hidden_layers"]
    encoder = Encoder(layers, lambda rngs: one, make_norm=None, rngs=nnx.Rngs(0))
    sizes = dict(context=config["max_position_embeddings"], kinds=config["type_vocab_size"])
    narrow = config["embedding_size"]
    return TextEncoder(
        config["vocab_size"], encoder, make_norm=norm, embed_features=narrow, **sizes, **options
    )


def tokenize(reaction: str) -> tuple[list[str], np.ndarray]:
    """Tokens of a reaction in SMILES with `[CLS]` and `[SEP]` around them, and their ids `[T]`."""
    vocabulary = (place() / "vocab.txt").read_text().split("\n")
    tokens = ["[CLS]", *TOKEN.findall(reaction), "[SEP]"]
    unknown = vocabulary.index("[UNK]")
    ids = [vocabulary.index(x) if x in vocabulary else unknown for x in tokens]
    return tokens, np.array(ids)


def attention_maps(model: TextEncoder, tokens: jax.Array) -> jax.Array:
    """`[T] -> [layers, N, T, T]`: the weights of every head of every layer."""
    maps, x = [], model.embedded(tokens)
    for block in model.encoder.blocks:
        maps.append(block.attention.with_weights(x)[1])
        x = block(x)
    return jnp.stack(maps)


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file that torch wrote before version 1.6, without torch.

    Five pickles (a mark, a version, a machine, the tree, the names of storages), then each storage:
    how many numbers, and the numbers.
    """
    file = io.BytesIO(path.read_bytes())
    for _ in range(3):
        pickle.load(file)
    storages: dict[str, tuple[Any, int]] = {}
    tree = TensorReader(file, storages).load()
    numbers = {}
    for name in pickle.load(file):
        dtype, count = storages[name]
        file.read(8)
        numbers[name] = np.frombuffer(file.read(count * np.dtype(dtype).itemsize), dtype)
    return {name: x.of(numbers) for name, x in tree.items()}


class Tensor(tuple):
    """A tensor whose storage is not read yet: name of the storage, offset, shape, strides."""

    def of(self, numbers: dict[str, np.ndarray]) -> np.ndarray:
        """Its numbers, out of those of the storages."""
        name, offset, shape, strides = self
        items = numbers[name][offset:]
        steps = [step * items.itemsize for step in strides]
        return np.lib.stride_tricks.as_strided(items, shape, steps, writeable=False)


class TensorReader(pickle.Unpickler):
    """Reads such a tree, and nothing that could run code."""

    def __init__(self, file: io.BytesIO, storages: dict[str, tuple[Any, int]]):
        super().__init__(file)
        self.storages = storages

    def persistent_load(self, pid: Any) -> str:
        _, kind, name, _, count, _ = pid
        self.storages[name] = (kind, count)
        return name

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: Tensor(
                (storage, offset, shape, strides)
            )
        if module == "torch" and name in TYPES:
            return TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a tree of tensors")
