"""Pictures of two digits with a prompt that says which, and where: "three above seven".

"before" and "after" are left and right, as one reads. A word's place in the picture follows from
all three words: the three of "three above seven" and of "seven below three" stands at the top.

Letters: B pictures, C classes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import digits

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES = {  # of the first digit and the second: row and column of the upper left pixel
    "above": ((0, 4), (8, 4)),
    "below": ((8, 4), (0, 4)),
    "before": ((4, 0), (4, 8)),
    "after": ((4, 8), (4, 0)),
}
RELATIONS = tuple(PLACES)
WORDS = (*NUMBERS, *RELATIONS, "")  # the last one stands where nothing is said
NOTHING = len(WORDS) - 1
SIDE, DIGIT = 16, 8
LENGTH = 3  # words of a prompt
PAPER = (0 - digits.MEAN) / digits.DEVIATION
UNSEEN = (3, 7)  # pairs whose difference modulo 10 is one of these are never trained on


class Prompted(NamedTuple):
    """Pictures `[B, 16, 16, 1]` and the words that ask for them, `[B, 3]`."""

    pictures: jax.Array
    words: jax.Array


class Shelf(NamedTuple):
    """Digits `[n, 8, 8, 1]` in the order of their classes; where each class starts; how many."""

    pictures: jax.Array
    starts: jax.Array  # [C]
    counts: jax.Array  # [C]


def shelf(pictures: np.ndarray, classes: np.ndarray) -> Shelf:
    """Digits put in order, so that one of a class can be drawn inside a compiled program."""
    order = np.argsort(classes, kind="stable")
    counts = np.bincount(classes, minlength=digits.CLASSES)
    starts = np.cumsum(counts) - counts
    return Shelf(*map(jnp.asarray, (pictures[order], starts, counts)))


def tokens(prompt: str) -> tuple[int, ...]:
    """The words of a prompt as integers.

    Raises:
      ValueError: it is not of the form "NUMBER RELATION NUMBER".
    """
    words = prompt.split()
    allowed = (NUMBERS, RELATIONS, NUMBERS)
    if len(words) != LENGTH or any(w not in a for w, a in zip(words, allowed, strict=True)):
        raise ValueError(
            "prompt must be a number, a relation and a number, with numbers from "
            f"{', '.join(NUMBERS)} and relations from {', '.join(RELATIONS)}; got {prompt!r}"
        )
    return tuple(WORDS.index(word) for word in words)


def sentence(words: np.ndarray) -> str:
    """`[3]` integers as the prompt that they are."""
    return " ".join(WORDS[word] for word in words)


def pairs(unseen: bool) -> np.ndarray:
    """Classes of first and second digit, `[n, 2]`: those kept from training, or all others."""
    first, second = np.divmod(np.arange(digits.CLASSES**2), digits.CLASSES)
    kept = np.isin((first - second) % digits.CLASSES, UNSEEN)
    return np.stack([first, second], axis=-1)[kept == unseen].astype(np.int32)


def prompts(unseen: bool) -> np.ndarray:
    """Every prompt of those pairs, `[n, 3]`."""
    asked = [
        (first, digits.CLASSES + relation, second)
        for first, second in pairs(unseen)
        for relation in range(len(RELATIONS))
    ]
    return np.asarray(asked, np.int32)


def draw(key: jax.Array, source: Shelf, count: int) -> Prompted:
    """So many pictures of pairs that are trained on, all pairs and relations alike."""
    asked = jnp.asarray(prompts(False))
    for_prompt, for_digits = jax.random.split(key)
    words = asked[jax.random.randint(for_prompt, (count,), 0, len(asked))]
    return Prompted(painted(for_digits, source, words), words)


def painted(key: jax.Array, source: Shelf, words: jax.Array) -> jax.Array:
    """A true picture of each prompt, with digits drawn from the shelf."""
    chosen = jax.random.uniform(key, (len(words), 2))
    classes = words[:, ::2]
    within = jnp.floor(chosen * source.counts[classes]).astype(jnp.int32)
    return jax.vmap(put)(source.pictures[source.starts[classes] + within], words[:, 1])


def put(two: jax.Array, relation: jax.Array) -> jax.Array:
    """Two digits `[2, 8, 8, 1]` where the relation's word says, `[16, 16, 1]`."""
    canvas = jnp.full((SIDE, SIDE, 1), PAPER, jnp.float32)
    for digit, place in zip(two, places(relation), strict=True):
        canvas = jax.lax.dynamic_update_slice(canvas, digit, (place[0], place[1], 0))
    return canvas


def cut(pictures: jax.Array, relation: jax.Array) -> jax.Array:
    """What stands where the two digits should: `[16, 16, c], [] -> [2, 8, 8, c]`."""
    size = (DIGIT, DIGIT, pictures.shape[-1])
    found = [
        jax.lax.dynamic_slice(pictures, (place[0], place[1], 0), size) for place in places(relation)
    ]
    return jnp.stack(found)


def places(relation: jax.Array) -> jax.Array:
    """Corners of the first and the second digit, `[2, 2]`, from the relation's word."""
    return jnp.asarray(list(PLACES.values()), jnp.int32)[relation - digits.CLASSES]
