"""Rectified flow: straight lines from noise to pictures, learned as velocities, then followed.

    x_t = (1 - t) noise + t picture,   v = picture - noise,   E |f(x_t, t, words) - v|² is least

and `dx/dt = f` carries noise at t = 0 to pictures at t = 1. Letters: B pictures.

Source: Liu et al. 2022, "Flow straight and fast", section 2; Lipman et al. 2023, "Flow matching for
generative modeling", section 4; Ho and Salimans 2022, "Classifier-free diffusion guidance".
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Velocity = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # (x, time, words) -> like x


def error(velocity: Velocity, pictures: jax.Array, words: jax.Array, key: jax.Array) -> jax.Array:
    """Mean square error of velocities, at times and noise that the key draws.

    Args:
      velocity: the model.
      pictures: `[B, h, w, c]`.
      words: `[B, S]`.
      key: of times and noise.
    """
    for_time, for_noise = jax.random.split(key)
    time = spread(for_time, len(pictures))
    noise = jax.random.normal(for_noise, pictures.shape)
    found = velocity(between(noise, pictures, time), time, words)
    return jnp.mean(jnp.square(found - (pictures - noise)))


def spread(key: jax.Array, count: int) -> jax.Array:
    """Times in [0, 1), one in each of `count` equal parts: less noise than as many free ones."""
    return (jnp.arange(count) + jax.random.uniform(key, (count,))) / count


def between(noise: jax.Array, pictures: jax.Array, time: jax.Array) -> jax.Array:
    """`(1 - t) noise + t picture`, with a time for each picture, `[B]`."""
    t = time[:, None, None, None]
    return (1 - t) * noise + t * pictures


def unsaid(key: jax.Array, words: jax.Array, nothing: int, share: float) -> jax.Array:
    """Words, of which this share of the prompts becomes `nothing`: for `guided`."""
    dropped = jax.random.bernoulli(key, share, (len(words), 1))
    return jnp.where(dropped, nothing, words)


def guided(velocity: Velocity, nothing: int, strength: float) -> Velocity:
    """`v(nothing) + strength (v(words) - v(nothing))`: farther from what no prompt would give."""

    def guide(x: jax.Array, time: jax.Array, words: jax.Array) -> jax.Array:
        silent = jnp.full_like(words, nothing)
        both = velocity(twice(x), twice(time), jnp.concatenate([words, silent]))
        said, unsaid = jnp.split(both, 2)
        return unsaid + strength * (said - unsaid)

    return guide


def twice(x: jax.Array) -> jax.Array:
    """`[B, ...] -> [2 B, ...]`."""
    return jnp.concatenate([x, x])


def follow(velocity: Velocity, noise: jax.Array, words: jax.Array, steps: int) -> jax.Array:
    """Pictures on their way from noise, `[steps + 1, B, h, w, c]`: Heun's rule, equal steps."""
    length = 1 / steps

    def step(x: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        now = jnp.full(len(x), at * length)
        first = velocity(x, now, words)
        second = velocity(x + length * first, now + length, words)
        x = x + length * (first + second) / 2
        return x, x

    _, path = jax.lax.scan(step, noise, jnp.arange(steps, dtype=noise.dtype))
    return jnp.concatenate([noise[None], path])
