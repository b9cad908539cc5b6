"""Two models that translate, side by side: the same pairs, the same loss, the same judge.

A GRU that reads the source through additive attention (2014) or through one fixed vector, and a
Transformer (2017). Letters: n examples, S source, L characters of the target.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.dates import END, START, TARGETS, Pairs
from jaxattn.nn import (
    Decoder,
    Encoder,
    EncoderDecoder,
    FeedForward,
    LanguageModel,
    MultiHeadAttention,
    RecurrentEncoderDecoder,
    ResidualBlock,
    TextEncoder,
    TransformerBlock,
    generate,
    generate_beams,
)

BATCH = 250  # examples in one call while judging


class Size(NamedTuple):
    """Of a model: the width of embeddings, of states (GRU), and how many blocks each side has."""

    width: int
    hidden: int = 0
    layers: int = 0
    heads: int = 0


def recurrent(vocabulary: int, size: Size, attention: str | None = "additive", seed: int = 0):
    """A GRU in both directions, and a GRU that writes."""

    def make() -> RecurrentEncoderDecoder:
        sizes: dict[str, Any] = dict(width=size.width, hidden=size.hidden)
        rngs = nnx.Rngs(seed)
        return RecurrentEncoderDecoder(vocabulary, TARGETS, **sizes, attention=attention, rngs=rngs)

    return nnx.jit(make)()


def transformer(vocabulary: int, size: Size, source: int, target: int, seed: int = 0):
    """Encoder and decoder with learned positions, for at most so many tokens on each side."""
    width, heads = size.width, size.heads

    def block(rngs: nnx.Rngs) -> ResidualBlock:
        own, other = (MultiHeadAttention(heads, width, rngs=rngs) for _ in range(2))
        return ResidualBlock(own, FeedForward(width, rngs=rngs), cross_attention=other)

    def make() -> EncoderDecoder:
        rngs = nnx.Rngs(seed)
        encoder = Encoder(size.layers, lambda r: TransformerBlock(width, heads, rngs=r), rngs=rngs)
        decoder = Decoder(size.layers, block, rngs=rngs)
        return EncoderDecoder(
            TextEncoder(vocabulary, encoder, context=source, rngs=rngs),
            LanguageModel(TARGETS, width, context=target, stack=decoder, tied=False, rngs=rngs),
        )

    return nnx.jit(make)()


def present(source: jax.Array, lengths: jax.Array) -> jax.Array:
    """`[n, S]`: which tokens are no padding."""
    return jnp.arange(source.shape[1], dtype=jnp.int32)[None, :] < lengths[:, None]


def logits(model: Any, pairs: Pairs) -> jax.Array:
    """Teacher forcing: `[n, L + 1, V]`, what comes after START and after each character."""
    source, lengths, target = pairs
    if isinstance(model, RecurrentEncoderDecoder):
        return model(source, target[:, :-1], lengths=lengths)
    return model(source, target[:, :-1], valid=present(source, lengths))


def surprise(model: Any, pairs: Pairs) -> jax.Array:
    """The mean of -log p of each character and of the end, in nats."""
    nats = -jax.nn.log_softmax(logits(model, pairs), axis=-1)
    return jnp.mean(jnp.take_along_axis(nats, pairs.target[:, 1:, None], axis=-1))


@functools.partial(nnx.jit, static_argnames=("length", "beams"))
def write(model: Any, source: jax.Array, lengths: jax.Array, length: int, beams: int) -> jax.Array:
    """`[n, length]`: greedy for one beam, else the best sequence that so many beams find."""
    if isinstance(model, RecurrentEncoderDecoder):
        options = dict(start=START, end=END, length=length)
        if beams == 1:
            return model.greedy(source, lengths, **options)
        return model.beam(source, lengths, **options, beams=beams).tokens[:, 0]
    valid = present(source, lengths)
    cache = model.init_cache(len(source), length, source, valid=valid)
    start = jnp.full((len(source), 1), START, source.dtype)
    if beams == 1:
        return generate(model, start, steps=length, cache=cache, stop=END).tokens
    options: dict[str, Any] = dict(steps=length, cache=cache, stop=END)
    return generate_beams(model, start, **options, beams=beams).tokens[:, 0]


def right(model: Any, pairs: Pairs, beams: int = 1) -> np.ndarray:
    """Boolean `[n]`: whether every character and the end are as they should be."""
    written = in_parts(
        lambda part: write(model, *part[:2], pairs.target.shape[1] - 1, beams), pairs
    )
    return np.all(written == pairs.target[:, 1:], axis=1)


def in_parts(function: Callable[[Pairs], jax.Array], pairs: Pairs) -> np.ndarray:
    """The function of BATCH examples at a time, of which the last are padded with themselves."""
    count = len(pairs.source)
    found = []
    for start in range(0, count, BATCH):
        places = np.minimum(np.arange(start, start + BATCH), count - 1)
        found.append(np.asarray(function(Pairs(*(jnp.asarray(x[places]) for x in pairs)))))
    return np.concatenate(found)[:count]


class Watched(nnx.Module):
    """An attention that keeps the weights of its last call."""

    def __init__(self, attention: MultiHeadAttention):
        self.attention = attention
        self.weights = nnx.data(None)

    def __call__(self, x: Any, context: Any, **options: Any) -> jax.Array:
        """As the attention's call."""
        out, self.weights = self.attention.with_weights(x, context, **options)
        return out


@nnx.jit
def alignments(model: Any, pairs: Pairs) -> jax.Array:
    """`[n, L + 1, S]`: what each step of the decoder looks at; of heads and blocks the mean."""
    if isinstance(model, RecurrentEncoderDecoder):
        read = model.read(pairs.source, pairs.lengths)
        return model.decoder.alignments(pairs.target[:, :-1], read)
    model = nnx.clone(model)
    for block in model.decoder.stack.blocks:
        block.cross_attention = Watched(block.cross_attention)
    logits(model, pairs)
    weights = [block.cross_attention.weights for block in model.decoder.stack.blocks]
    return jnp.mean(jnp.stack(weights), axis=(0, 2))
