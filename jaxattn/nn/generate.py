"""From a prompt to more tokens, one after the other. Letters: see `jaxattn._typing`.

A model here is any module with `init_cache(batch, length)` and `extend(tokens, cache, valid=...) ->
(logits, cache)`. V is the vocabulary, U the number of steps.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Bool, Float, Int, PRNGKey
from jaxattn.nn import _checks
from jaxattn.nn.sampling import check_sampling, sample
from jaxattn.nn.search import Beams, beam_search


class Generated(NamedTuple):
    """Generated tokens, how many of them count, and the cache before the last of them.

    `tokens` `[*B, U]` in the prompts' dtype; `counts` int32 `[*B]`: up to and with the stop token,
    behind which there are only stop tokens; `cache`: everything but the last column of tokens is in
    it, so `generate(model, tokens[..., -1:], cache=cache, ...)` goes on.
    """

    tokens: Int[Array, "*B U"]
    counts: Int[Array, "*B"]
    cache: Any


class _State(NamedTuple):
    """What a step starts from."""

    cache: Any
    logits: Float[Array, "*B V"]
    ended: Bool[Array, "*B"]


STATIC = ("steps", "temperature", "top_k", "top_p", "stop")


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
      tokens: prompts `[*B, T]`.
      steps: U.
      cache: of tokens before the prompt (for an `EncoderDecoder`, of its inputs); default an empty
        one for T + U - 1 tokens.
      valid: boolean `[*B, T]` or `[T]`, False for padding, at the left or at the right.
      temperature: 0 takes the most likely token, else one is drawn; see `sample`.
      top_k: likewise.
      top_p: likewise.
      stop: the token that ends an example; the others go on.
      key: of `jax.random.key`, where tokens are drawn.

    Returns:
      `Generated(tokens [*B, U], counts [*B], cache)`.

    Raises:
      TypeError: tokens are no integers.
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
    tokens = _entered(tokens, steps, temperature, top_k, top_p, key)
    if cache is None:
        cache = model.init_cache(tokens.shape[:-1], tokens.shape[-1] + steps - 1)
    _checks.room(cache, tokens.shape[-1] + steps - 1, valid)
    choose = dict(temperature=temperature, top_k=top_k, top_p=top_p, stop=stop)
    return _generate(model, tokens, cache, valid, key, steps=steps, **choose)


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
      an iterator of `[*B]`, in the prompts' dtype.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import LanguageModel, stream
      >>> sizes = dict(vocabulary=99, width=4, layers=1, num_heads=1, context=16)
      >>> model = nnx.jit(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))()
      >>> len([int(token) for token in stream(model, jnp.array([72, 10]), steps=3)])
      3
    """
    tokens = _entered(tokens, steps, temperature, top_k, top_p, key)
    if cache is None:
        cache = model.init_cache(tokens.shape[:-1], tokens.shape[-1] + steps - 1)
    _checks.room(cache, tokens.shape[-1] + steps - 1, valid)
    choose = dict(temperature=temperature, top_k=top_k, top_p=top_p, stop=stop)
    return _streamed(model, tokens, cache, valid, key, steps, choose)


def generate_beams(
    model: Any,
    tokens: Int[Array, "*B T"],
    *,
    steps: int,
    beams: int,
    cache: Any = None,
    valid: Bool[Array, "*B T"] | None = None,
    stop: int | None = None,
    length_penalty: float = 0.0,
) -> Beams:
    """The likeliest continuations that a beam of R finds: `beam_search` with a model and its cache.

    Args:
      model: as in `generate`; its cache's leaves begin with `*B`.
      tokens: prompts `[*B, T]`.
      steps: U.
      beams: R.
      cache: as in `generate`.
      valid: likewise.
      stop: likewise.
      length_penalty: α of `beam_search`.

    Returns:
      `Beams(tokens [*B, R, U], log_probability [*B, R])`, the best first.

    Raises: as in `generate`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import LanguageModel, generate_beams
      >>> sizes = dict(vocabulary=9, width=4, layers=1, num_heads=1, context=8)
      >>> model = nnx.jit(lambda: LanguageModel(rngs=nnx.Rngs(0), **sizes))()
      >>> generate_beams(model, jnp.array([[1, 2]]), steps=3, beams=4).tokens.shape
      (1, 4, 3)

    Source: Sutskever, Vinyals and Le 2014, section 3.2.
    """
    tokens = _entered(tokens, steps, 0, None, None, None)
    _checks.positive(beams=beams)
    if cache is None:
        cache = model.init_cache(tokens.shape[:-1], tokens.shape[-1] + steps - 1)
    _checks.room(cache, tokens.shape[-1] + steps - 1, valid)
    end = -1 if stop is None else stop
    options = dict(end=end, length=steps, beams=beams, length_penalty=length_penalty)
    return _beamed(model, tokens, cache, valid, **options)


@functools.partial(nnx.jit, static_argnames=("end", "length", "beams", "length_penalty"))
def _beamed(model: Any, tokens: Array, cache: Any, valid: Any, **options: Any) -> Beams:
    """The prompt but for its last token, then a beam from that one."""
    last = last_valid(tokens.shape, valid)
    places = jax.lax.broadcasted_iota(jnp.int32, tokens.shape, tokens.ndim - 1)
    before = places < last[..., None]
    before = before if valid is None else before & jnp.broadcast_to(valid, tokens.shape)
    _, cache = model.extend(tokens, cache, valid=before)
    start = jnp.take_along_axis(tokens, last[..., None], axis=-1)[..., 0]
    graph, weights = nnx.split(model)

    def step(cache: Any, tokens: Array) -> tuple[Any, Array]:
        logits, cache = nnx.merge(graph, weights).extend(tokens[..., None], cache)
        return cache, logits[..., 0, :]

    return beam_search(step, cache, start, **options)


def _streamed(
    model: Any, tokens: Array, cache: Any, valid: Any, key: Any, steps: int, choose: dict[str, Any]
) -> Iterator[Array]:
    state = _read_prompt(model, tokens, cache, valid)
    for i in range(steps):
        token, ended = _next_token(state, key, jnp.int32(i), **choose)
        yield token.astype(tokens.dtype)
        if bool(ended.all()) or i == steps - 1:
            return
        state = _step(model, state.cache, token, ended)


@functools.partial(nnx.jit, static_argnames=STATIC)
def _generate(
    model: Any, tokens: Array, cache: Any, valid: Any, key: Any, *, steps: int, **choose: Any
) -> Generated:
    """`generate`, behind its door."""
    graph, weights = nnx.split(model)

    def write(carry: tuple[Any, Array, Array], i: Array) -> tuple[Any, Array]:
        cache, last, ended = carry
        state = _after(nnx.merge(graph, weights), cache, last, ended)
        token, ended = _next_token(state, key, i, **choose)
        return (state.cache, token, ended), token

    state = _prompted(model, tokens, cache, valid)
    first, ended = _next_token(state, key, jnp.int32(0), **choose)
    carry, rest = jax.lax.scan(
        write, (state.cache, first, ended), jnp.arange(1, steps, dtype=jnp.int32)
    )
    written = jnp.concatenate([first[..., None], jnp.moveaxis(rest, 0, -1)], axis=-1)
    counts = _counts(written, choose["stop"])
    return Generated(written.astype(tokens.dtype), counts, carry[0])


def _prompted(model: Any, tokens: Array, cache: Any, valid: Any) -> _State:
    """The cache with the prompt, and the logits at each example's last token."""
    logits, cache = model.extend(tokens, cache, valid=valid)
    last = last_valid(tokens.shape, valid)
    logits = jnp.take_along_axis(logits, last[..., None, None], axis=-2)[..., 0, :]
    return _State(cache, logits, jnp.zeros(tokens.shape[:-1], bool))


def _after(model: Any, cache: Any, token: Array, ended: Array) -> _State:
    """One more token; those that ended take no place in the cache."""
    logits, cache = model.extend(token[..., None], cache, valid=~ended[..., None])
    return _State(cache, logits[..., 0, :], ended)


_read_prompt = nnx.jit(_prompted)
_step = nnx.jit(_after)


@functools.partial(jax.jit, static_argnames=STATIC[1:])
def _next_token(
    state: _State, key: Any, index: Array, *, stop: int | None, **choose: Any
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


def _counts(tokens: Array, stop: int | None) -> Array:
    """How many tokens there are up to and with the first stop."""
    if stop is None:
        return jnp.full(tokens.shape[:-1], tokens.shape[-1], jnp.int32)
    before = jnp.sum(jnp.cumsum(tokens == stop, axis=-1) == 0, axis=-1, dtype=jnp.int32)
    return jnp.minimum(before + 1, tokens.shape[-1])


def _entered(tokens: Any, steps: Any, temperature: Any, top_k: Any, top_p: Any, key: Any) -> Array:
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
