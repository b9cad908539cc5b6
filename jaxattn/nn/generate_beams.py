"""From a prompt to the likeliest continuations that a beam finds.

Letters: see `jaxattn._typing`; U is the number of steps, R the number of beams.
"""

import functools
from typing import Any

from flax import nnx

from jaxattn._typing import Array, Bool, Int
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.continuation import entered, opened, read_prompt
from jaxattn.nn.search import Beams, beam_search


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
      tokens: prompts `[*B, T]`, of any integer dtype.
      steps: U.
      beams: R.
      cache: as in `generate`.
      valid: likewise.
      stop: likewise.
      length_penalty: α of `beam_search`.

    Returns:
      `Beams(tokens int32 [*B, R, U], log_probability [*B, R])`, the best first.

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
    tokens = entered(tokens, steps, 0, None, None, None)
    _checks.positive(beams=beams)
    penalty = _checks.number("length_penalty", length_penalty)
    end = -1 if (end := _cache_checks.stop_token(stop)) is None else end
    cache = opened(model, tokens, cache, valid, steps)
    options = dict(end=end, length=steps, beams=beams, length_penalty=penalty)
    return _beamed(model, tokens, cache, valid, **options)


@functools.partial(nnx.jit, static_argnames=("end", "length", "beams", "length_penalty"))
def _beamed(model: Any, tokens: Array, cache: Any, valid: Any, **options: Any) -> Beams:
    """The prompt but for its last token, then a beam from that one."""
    state = read_prompt(model, tokens, cache, valid)
    graph, weights = nnx.split(model)

    def step(cache: Any, tokens: Array) -> tuple[Any, Array]:
        logits, cache = nnx.merge(graph, weights).extend(tokens[..., None], cache)
        return cache, logits[..., 0, :]

    return beam_search(step, state.cache, state.token, **options)
