"""From a prompt to more tokens, each as it comes. Letters: see `jaxattn._typing`."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Bool, Int, PRNGKey
from jaxattn.nn import _cache_checks, continuation
from jaxattn.nn.continuation import entered, opened

_read_prompt = nnx.jit(continuation.read_prompt)
_step = nnx.jit(continuation.step, static_argnames=continuation.CHOICE)


def stream(
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
) -> Iterator[Int[Array, "*B"]]:
    """The tokens of `generate` as they come: an iterator over `[*B]`, which ends when all have.

    Two programs are compiled, for the prompt and for a step.

    Args, Raises: as in `generate`.

    Returns:
      an iterator of int32 `[*B]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import LanguageModel, stream
      >>> sizes = dict(vocabulary=99, width=4, layers=1, num_heads=1, context=16)
      >>> model = nnx.jit(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))()
      >>> len([int(token) for token in stream(model, jnp.array([72, 10]), steps=3)])
      3
    """
    tokens = entered(tokens, steps, temperature, top_k, top_p, key)
    stop = _cache_checks.stop_token(stop)
    cache = opened(model, tokens, cache, valid, steps)
    choose: dict[str, Any] = dict(temperature=temperature, top_k=top_k, top_p=top_p, stop=stop)
    return _streamed(model, tokens, cache, valid, key, steps, choose)


def _streamed(
    model: Any, tokens: Array, cache: Any, valid: Any, key: Any, steps: int, choose: dict[str, Any]
) -> Iterator[Array]:
    state = _read_prompt(model, tokens, cache, valid)
    for i in range(steps):
        state = _step(model, state, key, jnp.int32(i), **choose)
        yield state.token
        if bool(state.ended.all()):
            return
