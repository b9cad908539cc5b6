"""Text from a language model, byte after byte."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.training import Model, logits


def samples(
    model: Model, params: nnx.State, prompt: np.ndarray, count: int, length: int, seed: int = 1
) -> list[str]:
    """`count` continuations of the prompt's last `context` bytes, as text."""
    start = jnp.asarray(np.tile(prompt[-model.recipe.context :], (count, 1)), jnp.int32)
    draw = jax.jit(functools.partial(continuations, model), static_argnames="length")
    drawn = np.asarray(draw(params, start, jax.random.key(seed), length=length))
    return [bytes(row.astype(np.uint8)).decode("utf-8", errors="replace") for row in drawn]


def continuations(
    model: Model,
    params: nnx.State,
    window: jax.Array,
    key: jax.Array,
    length: int,
    temperature: float = 0.7,
) -> jax.Array:
    """`[B, C] -> [B, length]`: each byte drawn from `softmax(logits / temperature)`."""

    def draw(window: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        last = logits(model, params, window)[:, -1, :]
        byte = jax.random.categorical(key, last / temperature).astype(window.dtype)
        return jnp.concatenate([window[:, 1:], byte[:, None]], axis=1), byte

    return jax.lax.scan(draw, window, jax.random.split(key, length))[1].T
