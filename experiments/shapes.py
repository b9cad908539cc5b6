"""Scenes of drawn shapes: ellipses, rectangles and triangles of any colour on a noisy ground.

Letters: B scenes, G = 4 places for shapes, s = 32 pixels a side. Boxes are (x, y, width, height) of
the middle and the sides, as shares of the picture.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

KINDS = ("ellipse", "rectangle", "triangle")
SIDE, SHAPES = 32, 4


class Scenes(NamedTuple):
    """Pictures `[B, s, s, 3]`; on them boxes `[B, G, 4]`, kinds and present `[B, G]`."""

    picture: jax.Array
    boxes: jax.Array
    kinds: jax.Array
    present: jax.Array


def scenes(key: jax.Array, count: int) -> Scenes:
    """So many scenes of 1 to 4 shapes, each scene from a key of its own."""
    return jax.vmap(scene)(jax.random.split(key, count))


def scene(key: jax.Array) -> Scenes:
    """One scene; shapes lie in different ninths of it, so that hardly any hides another."""
    keys = jax.random.split(key, 7)
    cells = jnp.argsort(jax.random.uniform(keys[0], (9,)))[:SHAPES]
    cells = jnp.stack([cells % 3, cells // 3], axis=-1).astype(jnp.float32)
    moved = jax.random.uniform(keys[1], (SHAPES, 2), minval=-0.05, maxval=0.05)
    halves = jax.random.uniform(keys[2], (SHAPES, 2), minval=0.09, maxval=0.16)
    middles = jnp.clip((cells + 0.5) / 3 + moved, halves, 1 - halves)
    kinds = jax.random.randint(keys[3], (SHAPES,), 0, len(KINDS))
    present = jnp.arange(SHAPES) < jax.random.randint(keys[4], (), 1, SHAPES + 1)
    colours = jnp.where(jax.random.uniform(keys[5], (SHAPES, 3)) < 0.5, 0.1, 0.9)
    ground = 0.5 + 0.05 * jax.random.normal(keys[6], (SIDE, SIDE, 3))
    covered = jax.vmap(coverage)(middles, halves, kinds) * present[:, None, None]
    picture, _ = jax.lax.scan(painted, ground, (covered, colours))
    return Scenes(picture, jnp.concatenate([middles, 2 * halves], axis=-1), kinds, present)


def painted(picture: jax.Array, shape: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
    """The picture with one more shape on top: its coverage `[s, s]` and colour `[3]`."""
    covered, colour = shape
    return picture + covered[..., None] * (colour - picture), None


def coverage(middle: jax.Array, half: jax.Array, kind: jax.Array) -> jax.Array:
    """The share of each pixel that a shape covers, `[s, s]`: from 1 to 0 over a pixel's width."""
    centres = (jnp.arange(SIDE) + 0.5) / SIDE
    x, y = centres[None, :] - middle[0], centres[:, None] - middle[1]
    a, b = half[0], half[1]
    ellipse = (jnp.sqrt((x / a) ** 2 + (y / b) ** 2) - 1) * jnp.minimum(a, b)
    rectangle = jnp.maximum(jnp.abs(x) - a, jnp.abs(y) - b)
    slanted = (2 * b * jnp.abs(x) - a * (y + b)) / jnp.sqrt(4 * b**2 + a**2)
    triangle = jnp.maximum(slanted, y - b)  # its tip is up
    outside = jnp.stack([ellipse, rectangle, triangle])[kind]
    return jnp.clip(0.5 - outside * SIDE, 0, 1)
