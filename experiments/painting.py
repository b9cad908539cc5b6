"""Train a painter of prompts and a reader of digits; let the painter draw.

Letters: B pictures, M moments on the way from noise to picture.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from experiments import digits, flow, prompted_digits, resumable
from experiments.image_classifiers import MODELS
from experiments.painter import Painter
from experiments.prompted_digits import NOTHING, Shelf
from experiments.training import State
from experiments.vision_transformer_reads_digits import loss as reading_loss

BATCH, PEAK = 64, 2e-3  # of the painter
READER, READER_PEAK = "convolutions", 3e-3
SILENT, STRENGTH = 0.1, 2.0  # share of prompts unsaid in training; of guidance
MOMENTS, AT_ONCE = 12, 160  # steps from noise to picture; pictures drawn in one call
SEED = 0

Read = Callable[[jax.Array], jax.Array]  # [n, 8, 8, 1] -> logits [n, C]
Follow = Callable[[jax.Array, jax.Array], jax.Array]  # (noise, words) -> path [M + 1, B, ...]


class Trained(NamedTuple):
    """A painter, and the error of its velocities before and after."""

    module: Painter
    before: float
    after: float


def reader(split: digits.Split, steps: int, out: Path) -> Read:
    """A classifier of single digits, trained."""
    optimizer = resumable.adamw(steps, READER_PEAK)
    new = resumable.fresh(MODELS[READER], optimizer, SEED)
    data = jax.tree.map(jnp.asarray, split.train)
    params = fitted(new, reading_loss, data, optimizer, steps, out, "reader of digits").params
    classify = jax.jit(lambda params, x: new.module(params)(x, deterministic=True))
    return functools.partial(classify, params)


def painter(train: Shelf, test: Shelf, steps: int, out: Path) -> Trained:
    """A painter, trained; errors are those on digits never seen."""
    optimizer = resumable.adamw(steps, PEAK)
    new = resumable.fresh(lambda rngs: Painter(rngs=rngs), optimizer, SEED)
    error = jax.jit(lambda params: painting_loss(new.module(params), test, jax.random.key(SEED)))
    before = float(error(new.state.params))
    params = fitted(new, painting_loss, train, optimizer, steps, out, "painter").params
    return Trained(new.module(params), before, float(error(params)))


def fitted(
    new: resumable.Fresh,
    loss: resumable.Loss,
    data: Any,
    optimizer: Any,
    steps: int,
    out: Path,
    label: str,
) -> State:
    """The state after so many steps on this data."""
    advance = resumable.scanned(new, loss, optimizer)

    def step(state: State, length: int) -> tuple[State, Any]:
        return advance(state, data, jnp.int32(SEED), length=length)

    return resumable.fit(step, new.state, steps, out, label)


def painting_loss(module: Any, source: Shelf, key: jax.Array) -> jax.Array:
    """Error of velocities on a batch that the key draws; some of its prompts are left unsaid."""
    drawn, dropped, noised = jax.random.split(key, 3)
    pictures, words = prompted_digits.draw(drawn, source, BATCH)
    return flow.error(module, pictures, flow.unsaid(dropped, words, NOTHING, SILENT), noised)


def follower(module: Painter) -> Follow:
    """The guided way from noise to pictures, compiled."""

    @jax.jit
    def follow(noise: jax.Array, words: jax.Array) -> jax.Array:
        return flow.follow(flow.guided(module, NOTHING, STRENGTH), noise, words, MOMENTS)

    return follow


def noise(count: int, seed: int) -> jax.Array:
    """Where so many pictures begin."""
    side = prompted_digits.SIDE
    return jax.random.normal(jax.random.key(seed), (count, side, side, 1))


def pictures(follow: Follow, start: jax.Array, words: np.ndarray, label: str) -> jax.Array:
    """A picture for each prompt, `[B, 16, 16, 1]`, with a bar.

    Args:
      follow: of `follower`.
      start: noise, B a multiple of `AT_ONCE`.
      words: `[B, 3]`.
      label: beside the bar.
    """
    parts = range(0, len(start), AT_ONCE)
    made = [
        follow(start[part : part + AT_ONCE], jnp.asarray(words[part : part + AT_ONCE]))[-1]
        for part in track(parts, description=label)
    ]
    return jnp.concatenate(made)
