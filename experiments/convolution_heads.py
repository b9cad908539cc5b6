"""Heads whose scores depend on where a key stands, and heads that also look at what it is.

Pictures are `[B, s, s]` and tokens their T = s² pixels, row by row. Letters: see `jaxattn._typing`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxattn import attention_with_weights

SIDE = 12
TOKENS = SIDE * SIDE
REACH = 2  # the farthest offset of a table
FAR = -30.0  # the score beyond it
Parameters = dict[str, jax.Array]


def offsets(query_positions: jax.Array, key_positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How far a key stands below and to the right of a query, in pixels."""
    down = key_positions // SIDE - query_positions // SIDE
    return down, key_positions % SIDE - query_positions % SIDE


def quadratic(centre: jax.Array, sharpness: jax.Array) -> Callable[..., jax.Array]:
    """A bias with a peak at an offset for each head: `-α_h |offset - Δ_h|²`.

    Source: Cordonnier, Loukas and Jaggi 2020, equation 9.
    """

    def bias(query_positions: jax.Array, key_positions: jax.Array) -> jax.Array:
        down, right = offsets(query_positions, key_positions)
        y, x = (c[:, None, None] for c in centre.T)
        return -sharpness[:, None, None] * ((down - y) ** 2 + (right - x) ** 2)

    return bias


def tabled(table: jax.Array) -> Callable[..., jax.Array]:
    """A bias with a number for each offset of one head: `[5, 5]`, and hardly anything beyond."""

    def bias(query_positions: jax.Array, key_positions: jax.Array) -> jax.Array:
        down, right = offsets(query_positions, key_positions)
        near = (jnp.abs(down) <= REACH) & (jnp.abs(right) <= REACH)
        places = jnp.clip(down, -REACH, REACH) + REACH, jnp.clip(right, -REACH, REACH) + REACH
        return jnp.where(near, table[places], FAR)

    return bias


def without_content(picture: jax.Array, bias: Callable[..., jax.Array], heads: int) -> Any:
    """What each head makes of pictures `[B, s, s]`, `[T, N, B]`, and its weights `[N, T, S]`.

    Scores are the bias alone, so that all pictures have the same weights: they are the features
    of one value.
    """
    value = picture.reshape(picture.shape[0], TOKENS).T[:, None]
    query, key = jnp.zeros((TOKENS, heads, 1)), jnp.zeros((TOKENS, 1, 1))
    return attention_with_weights(query, key, value, bias=bias)


def nine_heads(parameters: Parameters, picture: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`Σ_h w_h head_h`, `[B, s, s]`, and the sum's weights `[T, S]`."""
    bias = quadratic(parameters["centre"], jnp.exp(parameters["log_sharpness"]))
    out, weights = without_content(picture, bias, len(parameters["mix"]))
    mixed = jnp.einsum("n,tnb->bt", parameters["mix"], out)
    return mixed.reshape(picture.shape), jnp.einsum("n,nts->ts", parameters["mix"], weights)


def one_head(parameters: Parameters, picture: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One head with a table of offsets: out `[B, s, s]` and weights `[T, S]`."""
    out, weights = without_content(picture, tabled(parameters["table"]), 1)
    return out[:, 0].T.reshape(picture.shape), weights[0]


def content_head(parameters: Parameters, picture: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same head, also seeing pixels: out `[B, s, s]` and weights `[B, T, S]`."""
    x = picture.reshape(-1, TOKENS, 1, 1)
    seen = jnp.concatenate([x, x**2, jnp.ones_like(x)], axis=-1)
    query, key = (seen @ parameters[name] for name in ("w_query", "w_key"))
    out, weights = attention_with_weights(query, key, x, bias=tabled(parameters["table"]))
    return out.reshape(picture.shape), weights[:, 0]


def kernel(weights: Any) -> np.ndarray:
    """Weights `[T, S]` of the pixel in the middle, as a kernel of 5 × 5."""
    middle = SIDE // 2
    square = np.asarray(weights)[middle * SIDE + middle].reshape(SIDE, SIDE)
    near = slice(middle - REACH, middle + REACH + 1)
    return square[near, near]


def convolved(picture: jax.Array, kernel: np.ndarray) -> jax.Array:
    """Pictures `[B, s, s]` under a kernel of 3 × 3 (not mirrored), of the same size."""
    windows, shape = jnp.asarray(kernel, jnp.float32)[..., None, None], ("NHWC", "HWIO", "NHWC")
    out = jax.lax.conv_general_dilated(
        picture[..., None], windows, (1, 1), "SAME", dimension_numbers=shape
    )
    return out[..., 0]


def inside(picture: jax.Array) -> jax.Array:
    """Without the two outer pixels, where a convolution meets the border."""
    return picture[..., REACH:-REACH, REACH:-REACH]


def learned(
    loss: Callable[[Parameters, jax.Array], jax.Array],
    start: Parameters,
    steps: int,
    rate: float,
) -> tuple[Parameters, np.ndarray]:
    """Parameters after Adam's steps, and the loss of each; the loss gets each step's key."""
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps, 0.01))

    @jax.jit
    def run(start: Parameters) -> tuple[Parameters, jax.Array]:
        def step(state: Any, number: jax.Array) -> tuple[Any, jax.Array]:
            parameters, memory = state
            key = jax.random.fold_in(jax.random.key(1), number)
            value, gradient = jax.value_and_grad(loss)(parameters, key)
            change, memory = optimizer.update(gradient, memory)
            return (optax.apply_updates(parameters, change), memory), value

        (end, _), losses = jax.lax.scan(step, (start, optimizer.init(start)), jnp.arange(steps))
        return end, losses

    end, losses = run(start)
    return end, np.asarray(losses)
