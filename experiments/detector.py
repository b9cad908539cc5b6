"""A detector as DETR: object queries read a feature map, and each says one box and one class.

Letters: see `jaxattn._typing`; L blocks, B scenes, Q object queries, G true boxes, C classes and
"nothing".
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from experiments.boxes import overlap
from experiments.shapes import KINDS, SIDE, Scenes
from jaxattn.nn import Decoder, FeedForward, LayerNorm, MultiHeadAttention, ResidualBlock

WIDTH, HEADS, LAYERS = 64, 4, 2
QUERIES = 9
NOTHING = len(KINDS)
CLASS, L1, GIOU, RARE = 1.0, 5.0, 2.0, 0.3  # weights of losses; RARE: of a query without a shape


class Found(NamedTuple):
    """Logits `[L, B, Q, C]` and boxes `[L, B, Q, 4]`, after each block."""

    logits: jax.Array
    boxes: jax.Array


class Detector(nnx.Module):
    """Three convolutions to an 8 × 8 map, a decoder over it, two heads.

    Args:
      rngs: the stream `params`.
    """

    def __init__(self, *, rngs: nnx.Rngs):
        stages = ((3, WIDTH // 2, 2), (WIDTH // 2, WIDTH, 2), (WIDTH, WIDTH, 1))
        self.stem = nnx.List(
            nnx.Conv(before, after, (3, 3), strides=(stride, stride), rngs=rngs)
            for before, after, stride in stages
        )
        self.norms = nnx.List(LayerNorm(after) for _, after, _ in stages)
        draw = nnx.initializers.normal(0.3)
        self.places = nnx.Param(draw(rngs.params(), ((SIDE // 4) ** 2, WIDTH), jnp.float32))
        self.queries = nnx.Param(draw(rngs.params(), (QUERIES, WIDTH), jnp.float32))
        self.decoder = Decoder(LAYERS, block, rngs=rngs)
        self.classes = nnx.Linear(WIDTH, NOTHING + 1, rngs=rngs)
        self.box_hidden = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.box = nnx.Linear(WIDTH, 4, rngs=rngs)
        self.first_boxes = nnx.Param(spread(QUERIES))

    def __call__(self, picture: jax.Array) -> Found:
        """`[B, s, s, 3]` to what each block has found; the last one counts."""
        memory = self.memory(picture)
        x = jnp.broadcast_to(self.queries[...], (picture.shape[0], QUERIES, WIDTH))
        norm: Any = self.decoder.norm  # never None here
        found = []
        for block in self.decoder.blocks:
            x = block(x, memory)  # object queries see each other: no mask
            found.append(self.heads(norm(x)))
        return Found(*map(jnp.stack, zip(*found, strict=True)))

    def memory(self, picture: jax.Array) -> jax.Array:
        """The feature map with its positions, `[B, 64, D]`."""
        x = 2 * picture - 1
        for convolution, norm in zip(self.stem, self.norms, strict=True):
            x = nnx.gelu(norm(convolution(x)))
        return x.reshape(x.shape[0], -1, WIDTH) + self.places[...][None]

    def heads(self, x: jax.Array) -> Found:
        """A class, and a box as a step away from the query's first one."""
        step = self.box(nnx.gelu(self.box_hidden(x)))
        return Found(self.classes(x), jax.nn.sigmoid(step + self.first_boxes[...][None]))


def block(rngs: nnx.Rngs) -> ResidualBlock:
    """Queries among each other, then to the map, then feed-forward."""
    own, other = (MultiHeadAttention(HEADS, WIDTH, rngs=rngs) for _ in range(2))
    return ResidualBlock(own, FeedForward(WIDTH, 2 * WIDTH, rngs=rngs), cross_attention=other)


def spread(count: int) -> jax.Array:
    """Logits of boxes on a square grid, a quarter of the picture wide, `[Q, 4]`."""
    side = round(count**0.5)
    places = (jnp.arange(side) + 0.5) / side
    x, y = jnp.meshgrid(places, places)
    sides = jnp.full(side * side, 0.25)
    box = jnp.stack([x.reshape(-1), y.reshape(-1), sides, sides], axis=-1)
    return jnp.log(box / (1 - box))


def costs(found: Found, scenes: Scenes) -> jax.Array:
    """What it costs to give a query a true box, `[L, B, Q, G]`; 0 where there is none.

    Source: Carion et al. 2020, "End-to-end object detection with Transformers", section 3.1.
    """
    probability = jax.nn.softmax(found.logits, axis=-1)
    wanted = jax.nn.one_hot(scenes.kinds, NOTHING + 1)
    of_class = -jnp.einsum("lbqc,bgc->lbqg", probability, wanted)
    a, b = found.boxes[:, :, :, None], scenes.boxes[None, :, None]
    of_box = L1 * jnp.sum(jnp.abs(a - b), axis=-1) - GIOU * overlap(a, b)[1]
    return jnp.where(scenes.present[None, :, None], CLASS * of_class + of_box, 0)


def loss(found: Found, scenes: Scenes, matched: jax.Array) -> jax.Array:
    """Nats of classes, distance and GIoU of matched boxes, over the mean of all blocks.

    Args:
      found: by the model.
      scenes: B of them.
      matched: the query of each true box, `[L, B, G]`.
    """
    present = jnp.broadcast_to(scenes.present, matched.shape)
    given = jax.nn.one_hot(matched, QUERIES) * present[..., None]  # [L, B, G, Q]
    kinds = jnp.einsum("lbgq,bgc->lbqc", given, jax.nn.one_hot(scenes.kinds, NOTHING + 1))
    empty = 1 - jnp.sum(kinds, axis=-1)
    wanted = kinds.at[..., NOTHING].add(empty)
    weight = 1 + (RARE - 1) * empty
    nats = optax.softmax_cross_entropy(found.logits, wanted)
    boxes = jnp.einsum("lbgq,lbqk->lbgk", given, found.boxes)
    distance = jnp.sum(jnp.abs(boxes - scenes.boxes), axis=-1)
    apart = L1 * distance + GIOU * (1 - overlap(boxes, scenes.boxes[None])[1])
    shapes = jnp.maximum(jnp.sum(present), 1)
    of_boxes = jnp.sum(jnp.where(present, apart, 0)) / shapes
    return CLASS * jnp.sum(weight * nats) / jnp.sum(weight) + of_boxes
