"""The features of the primitive, each as arguments for ours and for the oracle.

All fit query `[2, 5, 4, 3]`, key `[2, 7, 2, 3]` and value `[2, 7, 2, 6]`, and combine freely.
Masks are joined with `&`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn.masks import Causal, Dense, Lengths, Predicate, Segments, SlidingWindow
from tests import calls, oracle

SHAPE = (2, 4, 5, 7)  # [*B, N, T, S]
RATE = 0.3


class Case(NamedTuple):
    """`operands` are differentiable, `options` are ours, `oracle` says the same to the oracle."""

    operands: dict
    options: dict
    oracle: dict


def warp(strength, scores, query_positions, key_positions):
    """A score function with a learned number, positions and a non-linearity."""
    distance = (query_positions - key_positions).astype(scores.dtype)
    return scores + strength * jnp.sin(scores) - 0.1 * distance


def warp_in_numpy(score, i, j):
    return score + 0.5 * np.sin(score) - 0.1 * (i - j)


def numbers(shape):
    return np.random.default_rng(11).standard_normal(shape)


def lengths():
    return jnp.array([4, 6])


IDS = np.array([[0, 0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 0, 0]])
TABLE = np.random.default_rng(12).random((2, 1, 5, 7)) < 0.7
KEY_LENGTHS = np.array([4, 6])
WINDOW = np.abs(np.arange(5)[:, None] - np.arange(7) + 1) <= 2  # key from i - 1 to i + 3

# name -> (differentiable arguments, other arguments of ours, the same for the oracle)
FEATURES = {
    "scale": lambda: ({"scale": np.array([0.5, 1.0, 1.5, 2.0])}, {}, {}),
    "softcap": lambda: ({"softcap": np.array(1.5)}, {}, {}),
    "score_mod": lambda: (
        {},
        {"score_mod": jax.tree_util.Partial(warp, jnp.array(0.5))},
        {"score_mod": warp_in_numpy},
    ),
    "bias": lambda: ({"bias": numbers((2, 1, 5, 7))}, {}, {}),
    "sink": lambda: ({"sink": numbers((4,))}, {}, {}),
    "dropout": lambda: dropout(),
    "causal": lambda: masked(Causal("start"), np.tri(5, 7, dtype=bool)),
    "window": lambda: masked(SlidingWindow(1, 3, "start"), WINDOW),
    "lengths": lambda: masked(
        Lengths(key=lengths()), np.arange(7) < KEY_LENGTHS[:, None, None, None]
    ),
    "segments": lambda: masked(
        Segments(jnp.asarray(IDS)), (IDS[:, :5, None] == IDS[:, None])[:, None]
    ),
    "table": lambda: masked(Dense(jnp.asarray(TABLE)), TABLE),
    "predicate": lambda: masked(Predicate(even), (np.arange(5)[:, None] + np.arange(7)) % 2 == 0),
}


def even(query_positions, key_positions):
    return (query_positions + key_positions) % 2 == 0


def masked(mask, allowed):
    return {}, {"mask": mask}, {"mask": allowed}


@functools.cache
def kept():
    words = jax.random.bits(jax.random.key(0), (2,), jnp.uint32)
    return oracle.kept(words, RATE, SHAPE)


def dropout():
    ours = {"dropout_rate": RATE, "dropout_key": jax.random.key(0)}
    return {}, ours, {"dropout_rate": RATE, "kept": kept()}


def combined(names):
    """Several features in one call."""
    case = Case(calls.heads(), {}, {})
    for name in names:
        for whole, part in zip(case, FEATURES[name](), strict=True):
            if "mask" in whole and "mask" in part:
                part = part | {"mask": whole["mask"] & part["mask"]}
            whole.update(part)
    return case
