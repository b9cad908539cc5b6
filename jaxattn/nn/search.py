"""From a model that says the next token to a sequence: greedily, or with a beam.

A model is a function `step(state, tokens [...]) -> (state, logits [..., V])` whose state is a
pytree of arrays with the same leading axes as the tokens. Letters: see `jaxattn._typing`; L is the
length that is written, R the number of beams.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.nn import _checks

Step = Callable[[Any, Array], tuple[Any, Array]]


class Beams(NamedTuple):
    """Sequences `[*B, R, L]`, the best first, and their log-probabilities `[*B, R]`.

    A sequence goes on with the end token behind its end. Where fewer than R sequences exist, the
    others have log-probability -inf.
    """

    tokens: Int[Array, "*B R L"]
    log_probability: Float[Array, "*B R"]


def greedy_search(
    step: Step, state: Any, start: Int[Array, "*B"], *, end: int, length: int
) -> Int[Array, "*B L"]:
    """The most probable token each time; behind the first end token only end tokens.

    Args:
      step: `(state, tokens [*B]) -> (state, logits [*B, V])`.
      state: before the first token; leaves `[*B, ...]`.
      start: the first tokens `[*B]`, of any integer dtype, which are not part of the answer.
      end: the token that ends a sequence.
      length: L.

    Returns:
      int32 `[*B, L]`.

    Raises:
      TypeError, ValueError: tokens are no integers, or the length is below 1.

    Example:
      A model that counts up to 3, which is the end:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import greedy_search
      >>> count = lambda state, token: (state, jax.nn.one_hot(token + 1, 4))
      >>> print(greedy_search(count, (), jnp.array(0), end=3, length=5))
      [1 2 3 3 3]

    Source: the usual one.
    """
    start = _validate.integers("start", start, "[*B]").astype(jnp.int32)
    _checks.positive(length=length)

    def write(carry: tuple[Any, Array, Array], _: None) -> tuple[Any, Array]:
        state, last, ended = carry
        state, logits = step(state, last)
        token = jnp.where(ended, end, jnp.argmax(logits, axis=-1).astype(jnp.int32))
        return (state, token, ended | (token == end)), token

    carry = (state, start, jnp.zeros(start.shape, bool))
    _, tokens = jax.lax.scan(write, carry, length=length)
    return jnp.moveaxis(tokens, 0, -1)


class _Search(NamedTuple):
    """What a beam search knows after some tokens."""

    state: Any
    last: Int[Array, "*B R"]
    ended: Bool[Array, "*B R"]
    score: Float[Array, "*B R"]
    tokens: Int[Array, "*B R L"]


def beam_search(
    step: Step,
    state: Any,
    start: Int[Array, "*B"],
    *,
    end: int,
    length: int,
    beams: int,
    length_penalty: float = 0.0,
) -> Beams:
    """Keep the R most probable beginnings after each token.

    Args:
      step: `(state, tokens [*B, R]) -> (state, logits [*B, R, V])`.
      state: before the first token; leaves `[*B, ...]`, repeated for each beam.
      start: the first tokens `[*B]`, of any integer dtype, which are not part of the answer.
      end: the token that ends a sequence.
      length: L.
      beams: R.
      length_penalty: α; the answers are ordered by `log p / ((5 + tokens) / 6)^α`.

    Returns:
      `Beams(tokens int32 [*B, R, L], log_probability [*B, R])`.

    Raises:
      TypeError, ValueError: tokens are no integers, or a number is below 1 or not finite.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import beam_search
      >>> count = lambda state, token: (state, 9.0 * jax.nn.one_hot(token + 1, 4))
      >>> print(beam_search(count, (), jnp.array(0), end=3, length=4, beams=2).tokens[0])
      [1 2 3 3]

    Source: Sutskever, Vinyals and Le 2014, section 3.2; Wu et al. 2016, equation 14 (penalty).
    """
    start = _validate.integers("start", start, "[*B]").astype(jnp.int32)
    _checks.positive(length=length, beams=beams)
    if not isinstance(length_penalty, jax.Array):
        _checks.number("length_penalty", length_penalty)
    axis, shape = start.ndim, (*start.shape, beams)
    state = jax.tree.map(lambda x: repeated(x, axis, beams), state)
    last = repeated(start, axis, beams)
    _, logits = jax.eval_shape(step, state, last)
    first = jnp.where(jnp.arange(beams) == 0, 0, -jnp.inf).astype(accumulator(logits.dtype))
    search = _Search(
        state=state,
        last=last,
        ended=jnp.zeros(shape, bool),
        score=jnp.broadcast_to(first.reshape((1,) * axis + (beams,)), shape),
        tokens=jnp.full((*shape, length), end, jnp.int32),
    )
    search = jax.lax.fori_loop(0, length, lambda i, search: _write(step, end, i, search), search)
    written = jnp.minimum(jnp.sum(search.tokens != end, axis=-1) + 1, length)
    ranked = search.score / ((5 + written.astype(first.dtype)) / 6) ** length_penalty
    order = jnp.argsort(-ranked, axis=-1)
    return Beams(chosen(search.tokens, order), chosen(search.score, order))


def _write(step: Step, end: int, index: Array, search: _Search) -> _Search:
    """One more token: of all R·V continuations the R best."""
    beams, state = search.last.shape[-1], search.state
    state, logits = step(state, search.last)
    added = jax.nn.log_softmax(logits.astype(search.score.dtype), axis=-1)
    size = added.shape[-1]
    is_end = jax.lax.broadcasted_iota(jnp.int32, added.shape, added.ndim - 1) == end
    added = jnp.where(search.ended[..., None], jnp.where(is_end, 0, -jnp.inf), added)
    total = search.score[..., None] + added
    score, place = jax.lax.top_k(total.reshape(*total.shape[:-2], beams * size), beams)
    parent, token = place // size, (place % size).astype(jnp.int32)
    state, ended, tokens = jax.tree.map(
        lambda x: chosen(x, parent), (state, search.ended, search.tokens)
    )
    tokens = jax.lax.dynamic_update_index_in_dim(tokens, token, index, tokens.ndim - 1)
    return _Search(state, token, ended | (token == end), score, tokens)


def repeated(x: Array, axis: int, times: int) -> Array:
    """A new axis of this size."""
    x = jnp.expand_dims(x, axis)
    return jnp.broadcast_to(x, (*x.shape[:axis], times, *x.shape[axis + 1 :]))


def chosen(x: Array, index: Int[Array, "*B R"]) -> Array:
    """`x[b, index[b, r]]`: the beams of this index."""
    axis = index.ndim - 1
    index = jnp.expand_dims(index, tuple(range(index.ndim, x.ndim)))
    return jnp.take_along_axis(x, index, axis=axis)
