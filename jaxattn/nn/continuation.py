"""One step of a generation: from a token and a cache to the next token.

A model here is any module with `init_cache(batch, length)` and `extend(tokens, cache, valid=...) ->
(logits, cache)`. Letters: see `jaxattn._typing`; V is the vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.cache import _door
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.sampling import check_sampling, sample

CHOICE = ("temperature", "top_k", "top_p", "stop")


class State(NamedTuple):
    """What a step starts from: a token, whether it enters the cache, and who has ended."""

    cache: Any
    token: Int[Array, "*B"]
    takes: Bool[Array, "*B"]
    ended: Bool[Array, "*B"]


def entered(tokens: Any, steps: Any, temperature: Any, top_k: Any, top_p: Any, key: Any) -> Array:
    """Tokens as int32, when all arguments are in range."""
    tokens = _checks.token_ids(tokens)
    _checks.positive(steps=steps)
    if tokens.shape[-1] == 0:
        raise ValueError(
            f"tokens must be [*B, T] with T ≥ 1, got shape {list(tokens.shape)}; begin with the "
            "token that starts a text"
        )
    check_sampling(key, temperature, top_k, top_p)
    return tokens.astype(jnp.int32)


def opened(model: Any, tokens: Array, cache: Any, valid: Any, steps: int) -> Any:
    """The cache that was given, or an empty one; it has room for prompt and steps."""
    length = tokens.shape[-1] + steps - 1
    if valid is not None:
        _door.valid_tokens(valid, tokens.shape[:-1], tokens.shape[-1])
        _cache_checks.tokens_to_read(valid)
    if cache is None:
        cache = model.init_cache(tokens.shape[:-1], length)
    _cache_checks.room(cache, length, valid)
    return cache


def read_prompt(model: Any, tokens: Array, cache: Any, valid: Any) -> State:
    """The prompt in the cache, but for each example's last token, which the first step reads.

    So logits are made for one token only, and the compiler leaves out those of the others.
    """
    batch, last = tokens.shape[:-1], last_valid(tokens.shape, valid)
    token = jnp.take_along_axis(tokens, last[..., None], axis=-1)[..., 0]
    takes = jnp.ones(batch, bool)
    if valid is not None:
        takes = jnp.any(jnp.broadcast_to(valid, tokens.shape), axis=-1)
    if tokens.shape[-1] > 1:
        before, counts = before_last(tokens, valid, last)
        _, cache = model.extend(before, cache, valid=counts)
    return State(cache, token, takes, jnp.zeros(batch, bool))


def before_last(tokens: Array, valid: Any, last: Array) -> tuple[Array, Array | None]:
    """The tokens before the last ones, and which of them count."""
    if valid is None:
        return tokens[..., :-1], None
    places = jax.lax.broadcasted_iota(jnp.int32, tokens.shape, tokens.ndim - 1)
    return tokens, jnp.broadcast_to(valid, tokens.shape) & (places < last[..., None])


def step(model: Any, state: State, key: Any, index: Array, **choose: Any) -> State:
    """One more token; those of examples that ended take no place in the cache."""
    takes = state.takes[..., None]
    logits, cache = model.extend(state.token[..., None], state.cache, valid=takes)
    token, ended = next_token(logits[..., 0, :], state.ended, key, index, **choose)
    return State(cache, token, ~ended, ended)


def next_token(
    logits: Float[Array, "*B V"], ended: Array, key: Any, index: Array, *, stop: Any, **choose: Any
) -> tuple[Array, Array]:
    """The next token of each example, and who has ended with it."""
    key = None if key is None else jax.random.fold_in(key, index)
    token = sample(key, logits, **choose).astype(jnp.int32)
    if stop is None:
        return token, ended
    token = jnp.where(ended, stop, token)
    return token, ended | (token == stop)


def last_valid(shape: tuple[int, ...], valid: Any) -> Int[Array, "*B"]:
    """The place of each example's last token that is no padding, for tokens of this shape."""
    if valid is None:
        return jnp.full(shape[:-1], shape[-1] - 1, jnp.int32)
    places = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    return jnp.max(jnp.where(jnp.broadcast_to(valid, shape), places, 0), axis=-1)
