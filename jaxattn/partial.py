"""Attention over a part of the keys, and how two parts become one.

Letters: see `jaxattn._typing`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Float
from jaxattn.softmax import finite_or_zero, log_or_minus_inf, positive_or_one


class Partial(NamedTuple):
    """Attention over some keys: the normalised sum, and the logsumexp that weighs it.

    `out [*B, T, N, Hv]` and `lse [*B, T, N]` (natural logarithm), both float32 or wider. A row
    with no keys is (0, -inf).
    """

    out: Float[Array, "*B T N H"]
    lse: Float[Array, "*B T N"]


def merge(left: Partial, right: Partial) -> Partial:
    """Attention over two disjoint sets of keys from the attention over each.

        lse = log(e^lse₁ + e^lse₂),   out = e^(lse₁ - lse) out₁ + e^(lse₂ - lse) out₂

    Associative and commutative, with (0, -inf) as the empty part. Shifted by the finite maximum
    with selects, so that derivatives are right and finite to any order, empty parts included.

    Args:
      left: attention over some keys.
      right: attention over others, of the same shapes; axes of 1 broadcast.

    Returns:
      The `Partial` over both.

    Raises:
      TypeError: dtypes differ.
      ValueError: shapes do not broadcast, or an lse has not its out's leading axes.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import Partial, merge
      >>> part = Partial(jnp.ones((1, 1, 2)), jnp.zeros((1, 1)))
      >>> empty = Partial(jnp.zeros((1, 1, 2)), jnp.full((1, 1), -jnp.inf))
      >>> print(merge(part, empty).out)
      [[[1. 1.]]]

    Source: Rabe and Staats 2021, "Self-attention does not need O(n²) memory", section 2.
    """
    left, right = _check(left, "left"), _check(right, "right")
    _validate.same_dtype(**{"left.lse": left.lse, "right.lse": right.lse})
    largest = jnp.maximum(jax.lax.stop_gradient(left.lse), jax.lax.stop_gradient(right.lse))
    shift = finite_or_zero(largest)
    weight_left, weight_right = _weight(left.lse, shift), _weight(right.lse, shift)
    total = weight_left + weight_right
    out = _weighted(weight_left, left.out) + _weighted(weight_right, right.out)
    return Partial(out / positive_or_one(total)[..., None], log_or_minus_inf(total, shift))


def _weight(lse: Array, shift: Array) -> Array:
    """`exp(lse - shift)`, and 0 with derivative 0 for the empty part."""
    filled = jnp.where(lse == -jnp.inf, shift, lse)
    return jnp.where(lse == -jnp.inf, 0, jnp.exp(filled - shift))


def _weighted(weight: Array, out: Array) -> Array:
    """`weight · out`, and 0 whatever out is where the weight is 0."""
    weight = weight[..., None]
    return weight * jnp.where(weight == 0, 0, out)


def _check(part: Any, name: str) -> Partial:
    if not isinstance(part, Partial):
        raise TypeError(
            f"{name} must be a Partial(out, lse), as partial_attention returns it, got "
            f"{type(part).__name__}"
        )
    out = _validate.floating(f"{name}.out", part.out, "[*B, T, N, Hv]")
    lse = _validate.floating(f"{name}.lse", part.lse, "[*B, T, N]")
    _validate.same_dtype(**{f"{name}.out": out, f"{name}.lse": lse})
    if out.ndim != lse.ndim + 1:
        raise ValueError(
            f"{name}.lse must be [*B, T, N] for {name}.out [*B, T, N, Hv], got shapes "
            f"{list(lse.shape)} and {list(out.shape)}"
        )
    return Partial(out, lse)
