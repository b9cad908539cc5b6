"""Whether pictures are what prompts ask for, and which word has a hand in which part of them.

Letters: B pictures, P patches, S = 3 words, L blocks, N heads, M moments.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from experiments import prompted_digits as prompted
from experiments.painter import PATCH, Painter, word_weights

Read = Callable[[jax.Array], jax.Array]  # [n, 8, 8, 1] -> logits [n, C]


def right(read: Read, pictures: jax.Array, words: jax.Array) -> np.ndarray:
    """Whether the first and the second digit are read where and as asked, booleans `[B, 2]`."""
    found = jax.vmap(prompted.cut)(pictures, words[:, 1])
    classes = jnp.argmax(read(found.reshape(-1, *found.shape[2:])), axis=-1)
    return np.asarray(classes.reshape(-1, 2) == words[:, ::2])


def areas(relation: jax.Array) -> jax.Array:
    """The pixels of the first and of the second digit, booleans `[2, 16, 16]`."""
    corner = prompted.places(relation)[:, :, None]
    inside = jnp.arange(prompted.SIDE) - corner  # [2, 2, 16]: from the corner on, by rows, columns
    inside = (inside >= 0) & (inside < prompted.DIGIT)
    return inside[:, 0, :, None] & inside[:, 1, None, :]


def own_share(maps: jax.Array, words: jax.Array) -> jax.Array:
    """The part of a digit word's weight that lies where its digit stands, `[..., B, 2]`.

        share = own / (own + other),   own, other: sums over the patches of the two digits

    A half by chance: what falls beside both digits is not counted.

    Args:
      maps: weights of words, `[..., B, P, S]`.
      words: `[B, S]`.
    """
    inside = jax.vmap(areas)(words[:, 1])[..., ::PATCH, ::PATCH]
    inside = inside.reshape(*inside.shape[:2], -1).astype(maps.dtype)  # [B, 2, P]
    mass = jnp.einsum("bap,...bpw->...bwa", inside, maps[..., ::2])
    return jnp.diagonal(mass, axis1=-2, axis2=-1) / jnp.sum(mass, axis=-1)


def own_change(before: jax.Array, after: jax.Array, words: jax.Array, which: int) -> jax.Array:
    """The part of the squared change that lies where that word's digit stands, `[B]`.

    Args:
      before: pictures `[B, 16, 16, 1]`.
      after: pictures from the same noise, with one word exchanged.
      words: `[B, 3]`, before.
      which: 0 for the first digit's word, 1 for the second's.
    """
    change = jnp.square(after - before)[..., 0]
    inside = jax.vmap(areas)(words[:, 1])[:, which]
    return jnp.sum(jnp.where(inside, change, 0), axis=(1, 2)) / jnp.sum(change, axis=(1, 2))


def maps_on_the_way(model: Painter, path: jax.Array, words: jax.Array) -> jax.Array:
    """Weights of words at each picture of a path but the last, `[M, L, B, P, S]`.

    The mean over heads. The path is that of `flow.follow`, whose moments are equally far apart.
    """
    times = jnp.arange(len(path) - 1, dtype=path.dtype) / (len(path) - 1)

    def at(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        picture, time = given
        weights = word_weights(model, picture, jnp.full(len(words), time), words)
        return jnp.mean(weights, axis=2)

    return jax.lax.map(at, (path[:-1], times))


def nearest(found: jax.Array, known: jax.Array) -> np.ndarray:
    """Distance of each digit to the nearest of those known: `[n, ...], [m, ...] -> [n]`."""
    a, b = found.reshape(len(found), -1), known.reshape(len(known), -1)
    squares = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None] - 2 * a @ b.T
    return np.sqrt(np.asarray(jnp.maximum(jnp.min(squares, axis=1), 0)))
