"""Deformable attention as a layer: it learns where to look, and how much each point counts.

Letters: see `jaxattn._typing`; L are the levels, P the points of a head in each.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxattn import attention_weights, deformable_attention, sampling_locations
from jaxattn._typing import Array, Bool, Float
from jaxattn.deformable import Shapes
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN


class DeformableAttention(nnx.Module):
    """Multi-scale deformable attention with learned offsets and weights.

        location = reference + offset(x) / size,   w = softmax over L and P of weight(x)

    At first every query looks around its reference in as many directions as there are heads, one
    cell further for each point, with equal weights.

    Args:
      width: D, of queries and values.
      num_heads: N, a divisor of D.
      levels: L.
      points: P, in each level.
      param_dtype: of the parameters; input must have it too.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: heads do not divide.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import DeformableAttention
      >>> layer = DeformableAttention(8, num_heads=2, levels=2, points=4, rngs=nnx.Rngs(0))
      >>> query, reference = jnp.ones((3, 5, 8), jnp.float32), jnp.full((3, 5, 2), 0.5)
      >>> value, shapes = jnp.ones((3, 20, 8)), ((4, 4), (2, 2))
      >>> nnx.jit(layer, static_argnames='shapes')(query, reference, value, shapes=shapes).shape
      (3, 5, 8)

    Source: Zhu et al. 2021, "Deformable DETR", section 4.1 and appendix A.2.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        levels: int,
        points: int = 4,
        *,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.divides("num_heads", num_heads, "width", width, "it is N·H for a whole H")
        _checks.positive(levels=levels, points=points)
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        zeros = nnx.initializers.zeros_init()
        heads = (num_heads, width // num_heads)
        looks = (num_heads, levels, points)
        directions = nnx.initializers.constant(around(*looks).ravel())
        self.width = width
        self.value = nnx.LinearGeneral(width, heads, kernel_init=FAN_IN, **options)
        self.offsets = nnx.LinearGeneral(
            width, (*looks, 2), kernel_init=zeros, bias_init=directions, **options
        )
        self.weights = nnx.LinearGeneral(
            width, (num_heads, levels * points), kernel_init=zeros, **options
        )
        self.out = nnx.LinearGeneral(heads, width, axis=(-2, -1), kernel_init=FAN_IN, **options)

    def __call__(
        self,
        query: Float[Array, "*B T D"],
        reference: Float[Array, "*B T 2"],
        value: Float[Array, "*B S D"],
        *,
        shapes: Shapes,
        mask: Bool[Array, "*B S"] | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D]`, `[*B, S, D]` -> `[*B, T, D]`.

        Args:
          query: `[*B, T, D]`.
          reference: (x, y) of each query in [0, 1], `[*B, T, 2]` or `[*B, T, L, 2]`.
          value: feature maps, flattened row by row and put one behind the other, `[*B, S, D]`.
          shapes: (height, width) of each level.
          mask: boolean `[*B, S]`; values that take no part are 0.
        """
        query = _checks.tokens_of_width("query", query, self.width, "width")
        value = _checks.tokens_of_width("value", value, self.width, "width")
        locations = sampling_locations(reference, self.offsets(query), shapes)
        weights = attention_weights(self.weights(query)).astype(query.dtype)
        weights = weights.reshape(locations.shape[:-1])
        heads = deformable_attention(self.value(value), shapes, locations, weights, mask=mask)
        return self.out(heads)


def around(num_heads: int, levels: int, points: int) -> np.ndarray:
    """First offsets `[N, L, P, 2]`: head h looks along the angle 2π h / N, point p p + 1 cells far.

    The larger coordinate is p + 1, so that with up to 8 heads each point is the middle of a cell.
    """
    angles = 2 * math.pi * np.arange(num_heads) / num_heads
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    directions /= np.abs(directions).max(axis=-1, keepdims=True)
    far = np.arange(1, points + 1)
    offsets = directions[:, None, None, :] * far[None, None, :, None]
    return np.broadcast_to(offsets, (num_heads, levels, points, 2))
