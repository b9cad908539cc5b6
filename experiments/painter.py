"""A Transformer over patches that reads a prompt by cross-attention, and says where pixels flow.

Letters: see `jaxattn._typing`; B pictures, P patches, S = 3 words.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.prompted_digits import LENGTH, SIDE, WORDS
from jaxattn.nn import Encoder, FeedForward, MultiHeadAttention, ResidualBlock, pre_norm

WIDTH, HEADS, LAYERS = 96, 4, 3
PATCH = 4  # pixels: a digit is 2 × 2 patches
ACROSS = SIDE // PATCH
WAVES = 16  # of time


class Painter(nnx.Module):
    """Velocity of each pixel, from a noisy picture, its time and a prompt.

    Words are embedded one by one and never see each other: what the picture learns of a word, it
    learns through that word's column of the cross-attention.

    Args:
      rngs: the stream `params`.
    """

    def __init__(self, *, rngs: nnx.Rngs):
        # Words and places start as large as noisy pixels, or they are drowned by them.
        ones, zeros = nnx.initializers.normal(1.0), nnx.initializers.zeros_init()
        self.words = nnx.Embed(len(WORDS), WIDTH, embedding_init=ones, rngs=rngs)
        self.word_places = nnx.Param(ones(rngs.params(), (LENGTH, WIDTH), jnp.float32))
        self.patches = nnx.Linear(PATCH * PATCH, WIDTH, rngs=rngs)
        self.places = nnx.Param(ones(rngs.params(), (ACROSS * ACROSS, WIDTH), jnp.float32))
        self.time_hidden = nnx.Linear(2 * WAVES, WIDTH, rngs=rngs)
        self.time = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.encoder = Encoder(LAYERS, block, rngs=rngs)
        self.velocity = nnx.Linear(WIDTH, PATCH * PATCH, kernel_init=zeros, rngs=rngs)

    def __call__(self, picture: jax.Array, time: jax.Array, words: jax.Array) -> jax.Array:
        """`[B, 16, 16, 1], [B], [B, 3] -> [B, 16, 16, 1]`."""
        x = self.encoder(self.embed(picture, time), self.read(words))
        return pixels(self.velocity(x))

    def embed(self, picture: jax.Array, time: jax.Array) -> jax.Array:
        """Patches with their places and the time, `[B, P, D]`."""
        moment = self.time(nnx.silu(self.time_hidden(waves(time))))
        return self.patches(patched(picture)) + self.places[...][None] + moment[:, None]

    def read(self, words: jax.Array) -> jax.Array:
        """Words with their places, `[B, S, D]`."""
        return self.words(words) + self.word_places[...][None]


def block(rngs: nnx.Rngs) -> ResidualBlock:
    """Patches among each other, then to the words, then feed-forward."""
    own, other = (MultiHeadAttention(HEADS, WIDTH, rngs=rngs) for _ in range(2))
    return ResidualBlock(own, FeedForward(WIDTH, rngs=rngs), cross_attention=other)


def patched(picture: jax.Array) -> jax.Array:
    """Patches row by row, each a vector of its pixels: `[B, 16, 16, c] -> [B, P, 16 c]`."""
    count, _, _, channels = picture.shape
    grid = picture.reshape(count, ACROSS, PATCH, ACROSS, PATCH, channels)
    return grid.swapaxes(2, 3).reshape(count, ACROSS * ACROSS, PATCH * PATCH * channels)


def pixels(patches: jax.Array) -> jax.Array:
    """The inverse of `patched`."""
    grid = patches.reshape(len(patches), ACROSS, ACROSS, PATCH, PATCH, -1)
    return grid.swapaxes(2, 3).reshape(len(patches), SIDE, SIDE, -1)


def waves(time: jax.Array) -> jax.Array:
    """Sines and cosines of a time in [0, 1], from half a period to 32 of them: `[B] -> [B, 2W]`."""
    turns = math.pi * jnp.geomspace(1.0, 64.0, WAVES)
    angle = time[:, None] * turns[None]
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def word_weights(
    model: Painter, picture: jax.Array, time: jax.Array, words: jax.Array
) -> jax.Array:
    """What patches take from each word, `[L, B, N, P, S]`: sums over words are 1."""
    x, context = model.embed(picture, time), model.read(words)
    found = []
    for part in model.encoder.blocks:
        layer: Any = part
        seen = pre_norm(x, layer.attention, layer.attention_norm)
        reading = layer.cross_attention_norm(seen)
        found.append(layer.cross_attention.with_weights(reading, context)[1])
        x = layer(x, context)
    return jnp.stack(found)
