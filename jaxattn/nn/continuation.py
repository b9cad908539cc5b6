"""One step of a generation: from a cache to logits, from logits to a token.

A model here is any module with `init_cache(batch, length)` and `extend(tokens, cache, valid=...) ->
(logits, cache)`. Letters: see `jaxattn._typing`; V is the vocabulary.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.nn import _checks
from jaxattn.nn.sampling import check_sampling, sample

CHOICE = ("temperature", "top_k", "top_p", "stop")


class State(NamedTuple):
    """What a step starts from."""

    cache: Any
    logits: Float[Array, "*B V"]
    ended: Bool[Array, "*B"]


def entered(tokens: Any, steps: Any, temperature: Any, top_k: Any, top_p: Any, key: Any) -> Array:
    """Tokens, when all arguments are in range."""
    tokens = _checks.token_ids(tokens)
    _checks.positive(steps=steps)
    if tokens.shape[-1] == 0:
        raise ValueError(
            f"tokens must be [*B, T] with T ≥ 1, got shape {list(tokens.shape)}; begin with the "
            "token that starts a text"
        )
    check_sampling(key, temperature, top_k, top_p)
    return tokens


def opened(model: Any, tokens: Array, cache: Any, valid: Any, steps: int) -> Any:
    """The cache that was given, or an empty one; it has room for prompt and steps."""
    length = tokens.shape[-1] + steps - 1
    if cache is None:
        cache = model.init_cache(tokens.shape[:-1], length)
    _checks.room(cache, length, valid)
    return cache


def read_prompt(model: Any, tokens: Array, cache: Any, valid: Any) -> State:
    """The cache with the prompt, and the logits at each example's last token."""
    logits, cache = model.extend(tokens, cache, valid=valid)
    last = last_valid(tokens.shape, valid)
    logits = jnp.take_along_axis(logits, last[..., None, None], axis=-2)[..., 0, :]
    return State(cache, logits, jnp.zeros(tokens.shape[:-1], bool))


def step(model: Any, cache: Any, token: Array, ended: Array) -> State:
    """One more token; those that ended take no place in the cache."""
    logits, cache = model.extend(token[..., None], cache, valid=~ended[..., None])
    return State(cache, logits[..., 0, :], ended)


@functools.partial(jax.jit, static_argnames=CHOICE)
def next_token(
    state: State, key: Any, index: Array, *, stop: int | None, **choose: Any
) -> tuple[Array, Array]:
    """The next token of each example, and who has ended with it."""
    key = None if key is None else jax.random.fold_in(key, index)
    token = sample(key, state.logits, **choose)
    if stop is None:
        return token, state.ended
    token = jnp.where(state.ended, stop, token)
    return token, state.ended | (token == stop)


def last_valid(shape: tuple[int, ...], valid: Any) -> Int[Array, "*B"]:
    """The place of each example's last token that is no padding, for tokens of this shape."""
    if valid is None:
        return jnp.full(shape[:-1], shape[-1] - 1, jnp.int32)
    places = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    return jnp.max(jnp.where(jnp.broadcast_to(valid, shape), places, 0), axis=-1)
