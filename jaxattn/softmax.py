"""Weights and sum: softmax over keys, where a row may be empty; then A V.

Masked scores are set to -inf by a select, never by a sum or a product with a mask, which would
turn 0 · NaN into NaN. Their exponential is 0, and so is every derivative of it: e^s times what the
select lets through, 0. The maximum carries no derivative, since the softmax does not depend on it.
Letters: see `jaxattn._typing`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float, Precision


class Exponentials(NamedTuple):
    """`exp(s - shift)` with its row sums; `weights = values / total`, 0 where total is 0."""

    values: Float[Array, "*B T S"]
    total: Float[Array, "*B T 1"]
    shift: Float[Array, "*B T 1"]


def exponentials(
    scores: Float[Array, "*B T S"], allowed: Bool[Array, "..."] | None = None
) -> Exponentials:
    """`exp(s_ij - max_j s_ij)` over allowed pairs (None: all), 0 elsewhere, and sums over keys."""
    if allowed is not None:
        scores = jnp.where(allowed, scores, -jnp.inf)
    shift = finite_or_zero(row_maximum(jax.lax.stop_gradient(scores)))
    values = jnp.exp(scores - shift)
    return Exponentials(values, jnp.sum(values, axis=-1, keepdims=True), shift)


def row_maximum(scores: Float[Array, "*B T S"]) -> Float[Array, "*B T 1"]:
    """`max_j s_ij`; -inf for an empty row, S = 0 included."""
    return jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)


def finite_or_zero(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x where it is finite, else 0: a shift that never makes inf - inf."""
    return jnp.where(jnp.isfinite(x), x, 0)


def positive_or_one(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x where it is not 0, else 1: a denominator whose derivative is finite in empty rows."""
    return jnp.where(x == 0, 1, x)


def log_or_minus_inf(total: Float[Array, "..."], shift: Float[Array, "..."]) -> Array:
    """`shift + log total`, and -inf where total is 0, with derivative 0 there."""
    return jnp.where(total == 0, -jnp.inf, shift + jnp.log(positive_or_one(total)))


def normalise(exponentials: Exponentials) -> Float[Array, "*B T S"]:
    """Weights from exponentials: `A_ij = e_ij / Σ_j e_ij`, and 0 in an empty row."""
    return exponentials.values / positive_or_one(exponentials.total)


def attention_weights(
    scores: Float[Array, "*B T S"], mask: Bool[Array, "..."] | None = None
) -> Float[Array, "*B T S"]:
    """Softmax over keys: `A = softmax(Ω)`; a row with nothing to attend to is 0.

    Args:
      scores: `[..., T, S]`. A score of -inf is a pair that takes no part.
      mask: boolean, broadcasts against scores; True takes part.

    Returns:
      `[..., T, S]`, float32 or wider. Rows sum to 1, empty rows to 0, and every derivative
      through an empty row is 0.

    Raises:
      TypeError: the mask is not boolean, or scores are not floating.
      ValueError: the mask does not broadcast against scores.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from jaxattn import attention_weights
      >>> print(np.array(attention_weights(jnp.array([[4.0, 2.0]]))).round(3))
      [[0.881 0.119]]

    Source: Vaswani et al. 2017, equation 1; empty rows as in the contract (README, Semantics).
    """
    scores, mask = _validate.scores_and_mask(scores, mask)
    scores = scores.astype(accumulator(scores.dtype))
    allowed = scores != -jnp.inf
    if mask is not None:
        allowed = allowed & jnp.broadcast_to(mask, scores.shape)
    return normalise(exponentials(scores, allowed))


def weighted_sum(
    weights: Float[Array, "*B T S"], value: Float[Array, "*B S H"], *, precision: Precision = None
) -> Float[Array, "*B T H"]:
    """Weighted sum of values: `C = A V`.

    Args:
      weights: `[..., T, S]`.
      value: `[..., S, Hv]`; summed in the wider of both dtypes.
      precision: as in `jax.lax.dot_general`.

    Returns:
      `[..., T, Hv]`, in the dtype of the weights.

    Raises:
      TypeError: an argument is no floating array.
      ValueError: S differs.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import weighted_sum
      >>> weights = jnp.array([[0.880797, 0.119203]])
      >>> print(weighted_sum(weights, jnp.array([[10.0], [4.0]])).round(4))
      [[9.2848]]

    Source: Vaswani et al. 2017, equation 1.
    """
    weights, value = _validate.weights_and_value(weights, value)
    wide = accumulator(weights.dtype, value.dtype)
    product = jnp.matmul(
        weights.astype(wide), value.astype(wide), precision=precision, preferred_element_type=wide
    )
    return product.astype(weights.dtype)
