"""From a prompt to more tokens, in one compiled program. Letters: see `jaxattn._typing`.

A model here is any module with `init_cache(batch, length)` and `extend(tokens, cache, valid=...) ->
(logits, cache)`. U is the number of steps.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Bool, Int, PRNGKey
from jaxattn.nn import _cache_checks
from jaxattn.nn.continuation import CHOICE, State, entered, opened, read_prompt, step


class Generated(NamedTuple):
    """Generated tokens, how many of them count, and the cache before the last of them.

    `tokens` int32 `[*B, U]`, `counts` int32 `[*B]`: up to and with the stop token,
    behind which there are only stop tokens; `cache`: everything but the last column of tokens is in
    it, so `generate(model, tokens[..., -1:], cache=cache, ...)` goes on, where the cache has room:
    the one that `generate` makes is full; pass one of your own, from `init_cache`.
    """

    tokens: Int[Array, "*B U"]
    counts: Int[Array, "*B"]
    cache: Any


def generate(
    model: Any,
    tokens: Int[Array, "*B T"],
    *,
    steps: int,
    cache: Any = None,
    valid: Bool[Array, "*B T"] | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | None = None,
    key: PRNGKey | None = None,
) -> Generated:
    """Continue prompts by `steps` tokens: one compiled program, with one loop.

    Args:
      model: with `init_cache` and `extend`, for example a `LanguageModel`.
      tokens: prompts `[*B, T]`, of any integer dtype.
      steps: U.
      cache: of tokens before the prompt (for an `EncoderDecoder`, of its inputs); default an empty
        one for T + U - 1 tokens.
      valid: boolean `[*B, T]` or `[T]`, False for padding, at the left or at the right;
        each prompt has a token.
      temperature: 0 takes the most likely token, else one is drawn; see `sample`.
      top_k: likewise.
      top_p: likewise.
      stop: the token that ends an example; the others go on.
      key: of `jax.random.key`, where tokens are drawn.

    Returns:
      `Generated(tokens [*B, U], counts [*B], cache)`.

    Raises:
      TypeError: tokens or stop are no integers, or the key is none.
      ValueError: T or steps are below 1, a number is out of range, a key is missing, or the cache
        is of another batch or too small.

    Example:
      Two prompts, of which the second is padded:

      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import LanguageModel, generate
      >>> sizes = dict(vocabulary=99, width=4, layers=1, num_heads=1, context=16)
      >>> model = nnx.jit(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))()
      >>> prompts = jnp.array([[72, 10, 8], [0, 72, 5]])
      >>> valid = jnp.array([[True, True, True], [False, True, True]])
      >>> generate(model, prompts, steps=5, valid=valid).tokens.shape
      (2, 5)

    Source: the usual one; cached keys and values as in Shazeer 2019, "Fast transformer decoding".
    """
    tokens = entered(tokens, steps, temperature, top_k, top_p, key)
    stop = _cache_checks.stop_token(stop)
    cache = opened(model, tokens, cache, valid, steps)
    choose = dict(temperature=temperature, top_k=top_k, top_p=top_p, stop=stop)
    return _generate(model, tokens, cache, valid, key, steps=steps, **choose)


@functools.partial(nnx.jit, static_argnames=("steps", *CHOICE))
def _generate(
    model: Any, tokens: Array, cache: Any, valid: Any, key: Any, *, steps: int, **choose: Any
) -> Generated:
    """`generate`, behind its door."""
    graph, weights = nnx.split(model)

    def write(state: State, index: Array) -> tuple[State, Array]:
        state = step(nnx.merge(graph, weights), state, key, index, **choose)
        return state, state.token

    state = read_prompt(model, tokens, cache, valid)
    state, written = jax.lax.scan(write, state, jnp.arange(steps, dtype=jnp.int32))
    written = jnp.moveaxis(written, 0, -1)
    counts = _counts(written, choose["stop"])
    return Generated(written, counts, state.cache)


def _counts(tokens: Array, stop: int | None) -> Array:
    """How many tokens there are up to and with the first stop."""
    if stop is None:
        return jnp.full(tokens.shape[:-1], tokens.shape[-1], jnp.int32)
    before = jnp.sum(jnp.cumsum(tokens == stop, axis=-1) == 0, axis=-1, dtype=jnp.int32)
    return jnp.minimum(before + 1, tokens.shape[-1])
