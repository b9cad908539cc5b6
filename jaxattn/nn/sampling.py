"""From logits to a token: the most likely, or one that is drawn. Letters: `jaxattn._typing`."""

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, Int, PRNGKey
from jaxattn.nn import _cache_checks, _checks


def keep_top_k(logits: Float[Array, "*B V"], count: int) -> Float[Array, "*B V"]:
    """Logits below the `count`-th largest become -inf; equal ones stay together.

    Args:
      logits: `[*B, V]`.
      count: from 1; at V or more all stay.

    Returns:
      `[*B, V]`.

    Raises:
      TypeError, ValueError: count is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import keep_top_k
      >>> print(keep_top_k(jnp.array([1.0, 3.0, 2.0]), 2))
      [-inf   3.   2.]

    Source: Fan, Lewis and Dauphin 2018, "Hierarchical neural story generation", section 5.4.
    """
    _checks.positive(top_k=count)
    if count >= logits.shape[-1]:
        return logits
    least = jax.lax.top_k(logits, count)[0][..., -1:]
    return jnp.where(logits >= least, logits, -jnp.inf)


def keep_top_p(logits: Float[Array, "*B V"], share: float) -> Float[Array, "*B V"]:
    """The fewest most likely tokens that have `share` of the probability; the others become -inf.

    Args:
      logits: `[*B, V]`.
      share: in (0, 1]; the most likely token always stays.

    Returns:
      `[*B, V]`.

    Raises:
      TypeError, ValueError: the share is no number in (0, 1].

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import keep_top_p
      >>> print(jnp.exp(keep_top_p(jnp.log(jnp.array([0.5, 0.25, 0.25])), 0.7)))
      [0.5  0.25 0.  ]

    Source: Holtzman et al. 2020, "The curious case of neural text degeneration", section 3.1.
    """
    check_share(share)
    order = jnp.argsort(-logits, axis=-1)
    ranked = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
    before = jnp.cumsum(ranked, axis=-1) - ranked
    kept = jnp.take_along_axis(before < share, jnp.argsort(order, axis=-1), axis=-1)
    return jnp.where(kept, logits, -jnp.inf)


def sample(
    key: PRNGKey | None,
    logits: Float[Array, "*B V"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Int[Array, "*B"]:
    """A token for each example: drawn from `softmax(logits / temperature)`, or the most likely.

    Args:
      key: of `jax.random.key`; not needed at temperature 0.
      logits: `[*B, V]`.
      temperature: a number ≥ 0, static; 0 takes the most likely token (the first of equal ones).
      top_k: draw among the k most likely; see `keep_top_k`.
      top_p: draw among the most likely with this share, after `top_k`; see `keep_top_p`.

    Returns:
      int32 `[*B]`.

    Raises:
      TypeError: logits are not floating, or the key is none.
      ValueError: a number is out of range, or a key is missing.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import sample
      >>> print(sample(None, jnp.array([[0.0, 2.0, 1.0]]), temperature=0))
      [1]
    """
    logits = _validate.floating("logits", logits, "[*B, V]")
    check_sampling(key, temperature, top_k, top_p)
    logits = logits.astype(accumulator(logits.dtype))
    if temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / temperature
    logits = logits if top_k is None else keep_top_k(logits, top_k)
    logits = logits if top_p is None else keep_top_p(logits, top_p)
    drawn = jax.random.categorical(jnp.asarray(key), logits)
    return drawn.astype(jnp.int32)


def check_sampling(
    key: PRNGKey | None, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    """Numbers in range, and a key where something is drawn."""
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise TypeError(
            f"temperature must be a Python number (it is static), got {type(temperature).__name__}"
        )
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be at least 0 and finite, got {temperature}")
    if top_k is not None:
        _checks.positive(top_k=top_k)
    if top_p is not None:
        check_share(top_p)
    _cache_checks.random_key(key)
    if temperature > 0 and key is None:
        raise ValueError(
            f"temperature = {temperature} draws tokens and needs key=jax.random.key(seed); "
            "temperature=0 takes the most likely one"
        )


def check_share(top_p: float) -> None:
    """A share in (0, 1]."""
    if not 0 < _checks.number("top_p", top_p) <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
