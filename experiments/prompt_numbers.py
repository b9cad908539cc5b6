"""What is counted in `prompts_draw_digits.py`: correct digits, words at work, likeness to training.

Letters: B pictures, P patches, S = 3 words, L blocks, M moments.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import digits, painting, prompted_digits
from experiments import prompt_measures as measures
from experiments.painter import Painter
from experiments.prompted_digits import Shelf


class Looked(NamedTuple):
    """Pictures on their way `[M + 1, B, ...]`, weights of words `[M, L, B, P, S]`, `[B, S]`."""

    path: jax.Array
    maps: jax.Array
    words: jax.Array


class Drawn(NamedTuple):
    """Pictures `[B, 16, 16, 1]`, their prompts `[B, 3]`, whether digits are right `[B, 2]`."""

    pictures: jax.Array
    words: np.ndarray
    right: np.ndarray


def drawn(follow: painting.Follow, read: measures.Read, unseen: bool, repeats: int) -> Drawn:
    """So many samples of every prompt of these pairs, in an order of no meaning."""
    asked = np.tile(prompted_digits.prompts(unseen), (repeats, 1))
    asked = np.random.default_rng(0).permutation(asked)
    label = "pairs never trained on" if unseen else "pairs trained on"
    pictures = painting.pictures(follow, painting.noise(len(asked), 1 + unseen), asked, label)
    return Drawn(pictures, asked, measures.right(read, pictures, jnp.asarray(asked)))


def correctness(seen: Drawn, unseen: Drawn, read: measures.Read, test: Shelf) -> dict[str, float]:
    """Per cent of pictures in which digits are read as asked."""
    others = np.random.default_rng(1).permutation(seen.words)
    shuffled = measures.right(read, seen.pictures, jnp.asarray(others))
    asked = jnp.asarray(seen.words)
    true = prompted_digits.painted(jax.random.key(0), test, asked)
    real = np.argmax(read(test.pictures), axis=-1) == np.repeat(np.arange(10), test.counts)
    both = {
        "both digits as asked": seen.right,
        "both digits as asked, pairs never trained on": unseen.right,
        "both digits as another prompt asks": shuffled,
        "both digits as asked, true digits never seen": measures.right(read, true, asked),
    }
    return {name: 100 * float(np.mean(np.all(value, axis=-1))) for name, value in both.items()} | {
        "a digit as asked": 100 * float(np.mean(seen.right)),
        "a digit as asked, pairs never trained on": 100 * float(np.mean(unseen.right)),
        "reader, true digits never seen": 100 * float(np.mean(real)),
    }


def looked_at(
    follow: painting.Follow, model: Painter, seen: Drawn, shown: tuple[str, ...]
) -> Looked:
    """What is read on the way to one more picture of some prompts, the shown ones first."""
    first = [prompted_digits.tokens(prompt) for prompt in shown]
    asked = jnp.asarray(np.concatenate([first, seen.words])[: painting.AT_ONCE])
    path = follow(painting.noise(len(asked), 3), asked)
    return Looked(path, jax.jit(measures.maps_on_the_way)(model, path, asked), asked)


def word_numbers(follow: painting.Follow, looked: Looked) -> dict[str, Any]:
    """Per cent of weights, and of what changes with a word, where that word's digit stands."""
    path, maps, asked = looked
    shares = 100 * np.asarray(measures.own_share(maps, asked))
    changes = []
    for which in (0, 1):
        step = jax.random.randint(jax.random.key(which), (len(asked),), 1, digits.CLASSES)
        other = (asked[:, 2 * which] + step) % digits.CLASSES
        changed = follow(path[0], asked.at[:, 2 * which].set(other))[-1]
        changes.append(measures.own_change(path[-1], changed, asked, which))
    return {
        "weights of a digit's word on its own digit, after the first block": float(
            np.mean(shares[:, 1:])
        ),
        "weights of a digit's word on its own digit, each block": np.mean(shares, axis=(0, 2, 3)),
        "change in its own digit when a digit's word changes": 100 * float(np.mean(changes)),
    }


def novelty(seen: Drawn, train: Shelf, test: Shelf) -> dict[str, float]:
    """Samples copied from training would be at 0, and other digits of the same hands about 1."""
    single = jax.vmap(prompted_digits.cut)(seen.pictures, jnp.asarray(seen.words[:, 1]))
    single = single.reshape(-1, *single.shape[2:])
    far, usual = (np.median(measures.nearest(x, train.pictures)) for x in (single, test.pictures))
    name = "distance to the nearest digit of training, over that of digits never seen"
    return {name: float(far / usual)}
