"""Attention with linear biases."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float
from jaxattn.biases._base import Bias
from jaxattn.masks._base import changed, mask_class, with_rank


@mask_class(leaves=("slopes",))
class ALiBi(Bias):
    """Attention with linear biases: the farther, the less, and each head at its own rate.

        b_hij = -slope_h · |query position i - key position j|

    The paper has it under a causal mask, where the distance is i - j; without one it is symmetric.

    Args:
      slopes: floating `[N]`, learned or from `alibi_slopes`.

    Raises (when used):
      TypeError: slopes are not floating.
      ValueError: slopes are not `[N]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.biases import ALiBi
      >>> bias = ALiBi(jnp.array([0.5, 0.25]))
      >>> print(bias(jnp.array([[0], [2]]), jnp.array([[0, 2]])))
      [[[-0.  -1. ]
        [-1.  -0. ]]
      <BLANKLINE>
       [[-0.  -0.5]
        [-0.5 -0. ]]]

    Source: Press et al. 2022, "Train short, test long", section 3.
    """

    slopes: Float[Array, "N"]

    def check(
        self, batch: tuple[int, ...], heads: int, queries: int | None, keys: int | None
    ) -> None:
        """Slopes are floating `[N]`."""
        slopes = _validate.floating(
            "ALiBi.slopes", self.slopes, "[N]", f"alibi_slopes({heads}) are the paper's"
        )
        if slopes.shape != (heads,):
            raise ValueError(
                f"ALiBi.slopes must be [N] = [{heads}], got shape {list(slopes.shape)}; "
                f"alibi_slopes({heads}) are the paper's"
            )

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """Minus the slope times the distance."""
        slopes = jnp.asarray(self.slopes)
        slopes = slopes.astype(accumulator(slopes.dtype))[:, None, None]
        distance = jnp.abs(query_positions - key_positions).astype(slopes.dtype)
        rank = max(distance.ndim, 3)
        return -with_rank(slopes, rank) * with_rank(distance, rank)

    def heads(self, first: Any, count: int) -> "ALiBi":
        """The slopes of these heads."""
        slopes = jax.lax.dynamic_slice_in_dim(self.slopes, first, count)
        return changed(self, slopes=slopes)


def alibi_slopes(heads: int) -> Float[Array, "N"]:
    """The paper's slopes: for N a power of two, `slope_h = 2^(-8 (h + 1) / N)`, h from 0.

    Otherwise those of the largest power of two P below N, then every other one of 2P's, from its
    first on, until there are N.

    Args:
      heads: N.

    Returns:
      float32 `[N]`.

    Raises:
      TypeError: heads is no integer.
      ValueError: heads is below 1.

    Example:
      >>> from jaxattn.biases import alibi_slopes
      >>> print(alibi_slopes(3))
      [0.0625     0.00390625 0.25      ]

    Source: Press et al. 2022, section 3; for other N, their published code.
    """
    if _validate.integer("heads", heads) < 1:
        raise ValueError(f"heads must be N ≥ 1, got {heads}")
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(0, 2 * power, 2)]
    return jnp.array((slopes + between)[:heads], jnp.float32)
