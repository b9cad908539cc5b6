"""Deformable attention: a query looks at a few points of each feature map, wherever it likes.

Letters: see `jaxattn._typing`; L are the levels (feature maps of different sizes, flattened row
by row and put one behind the other along S), P the points that a head looks at in each.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._deformable_door import Shapes, enter, level_shapes
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float


def deformable_attention(
    value: Float[Array, "*B S N Hv"],
    shapes: Shapes,
    locations: Float[Array, "*B T N L P 2"],
    weights: Float[Array, "*B T N L P"],
    *,
    mask: Bool[Array, "*B S"] | None = None,
) -> Float[Array, "*B T N Hv"]:
    """Multi-scale deformable attention: a weighted sum of values at points between the cells.

        out_i = Σ_l Σ_p w_ilp · sample(value_l, location_ilp)

    for each head. A location is (x, y), with (0, 0) the upper left corner of a feature map and
    (1, 1) its lower right corner; the cell at column c of W stands at x = (c + 1/2) / W. Between
    cells values are interpolated bilinearly, and beyond the borders they are 0. The derivative at
    the middle of a cell, where there are two, is that towards larger x and y.

    Args:
      value: `[*B, S, N, Hv]`.
      shapes: (height, width) of each level, in the order of S; their products sum to S.
      locations: `[*B, T, N, L, P, 2]`. One that is NaN makes NaN of its query and head, and of no
        gradient; one far away, or infinite, samples 0.
      weights: `[*B, T, N, L, P]`, used as they are.
      mask: boolean `[*B, S]` or `[S]`; values that take no part (padding) are 0.

    Returns:
      `[*B, T, N, Hv]` in value's dtype, summed in float32 or wider.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit, levels that do not sum to S.

    Example:
      Half way between the two cells of a row:

      >>> import jax.numpy as jnp
      >>> from jaxattn import deformable_attention
      >>> value = jnp.array([2.0, 6.0]).reshape(2, 1, 1)
      >>> location = jnp.array([0.5, 0.5]).reshape(1, 1, 1, 1, 2)
      >>> deformable_attention(value, ((1, 2),), location, jnp.ones((1, 1, 1, 1))).item()
      4.0

    Source: Zhu et al. 2021, "Deformable DETR", equation 3; samples as PyTorch's `grid_sample` with
      `align_corners=False` and zeros.
    """
    value, shapes, locations, weights, here = enter(value, shapes, locations, weights, mask)
    wide = accumulator(value.dtype)
    if here is not None:
        value = jnp.where(here[..., None, None], value, 0)
    dtype, value = value.dtype, jnp.swapaxes(value.astype(wide), -2, -3)
    ends = np.cumsum([0, *(height * width for height, width in shapes)])
    out: Any = 0
    for level, shape in enumerate(shapes):
        cells = value[..., ends[level] : ends[level + 1], :]
        points = jnp.swapaxes(locations[..., level, :, :].astype(wide), -3, -4)
        samples = sample(cells, shape, points)
        shares = jnp.swapaxes(weights[..., level, :].astype(wide), -2, -3)
        out = out + jnp.einsum("...tp,...tph->...th", shares, samples)
    unknown = jnp.isnan(locations).any(axis=(-3, -2, -1))[..., None]
    return jnp.where(unknown, jnp.nan, jnp.swapaxes(out, -2, -3)).astype(dtype)


def sample(
    cells: Float[Array, "*B S Hv"], shape: tuple[int, int], locations: Float[Array, "*B T P 2"]
) -> Float[Array, "*B T P Hv"]:
    """Bilinear samples of one feature map `[height · width, Hv]` at (x, y); 0 where that is NaN."""
    height, width = shape
    x, inside_x = _pixels(locations[..., 0], width)
    y, inside_y = _pixels(locations[..., 1], height)
    left, top = (jnp.floor(place).astype(jnp.int32) for place in (x, y))
    right, down = x - left.astype(x.dtype), y - top.astype(y.dtype)
    out: Any = 0
    for column, share_x in ((left, 1 - right), (left + 1, right)):
        for row, share_y in ((top, 1 - down), (top + 1, down)):
            exists = inside_x & inside_y & (column >= 0) & (column < width)
            exists = exists & (row >= 0) & (row < height)
            index = jnp.where(exists, row * width + column, 0)
            found = jnp.where(exists[..., None], _gather(cells, index), 0)
            out = out + (share_x * share_y)[..., None] * found
    return out


def sampling_locations(
    reference: Float[Array, "*B T 2"], offsets: Float[Array, "*B T N L P 2"], shapes: Shapes
) -> Float[Array, "*B T N L P 2"]:
    """Where a query looks: `reference + offset / (width_l, height_l)`, offsets in cells.

    Args:
      reference: (x, y) of each query in [0, 1], `[*B, T, 2]`, or one for each level,
        `[*B, T, L, 2]`.
      offsets: `[*B, T, N, L, P, 2]`, (x, y) in cells of the level.
      shapes: (height, width) of each level.

    Returns:
      `[*B, T, N, L, P, 2]`.

    Raises:
      TypeError: integer or mixed dtypes.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import sampling_locations
      >>> offsets = jnp.ones((1, 1, 1, 1, 2))
      >>> print(sampling_locations(jnp.array([[0.5, 0.5]]), offsets, ((10, 5),)).ravel())
      [0.7 0.6]

    Source: Zhu et al. 2021, equation 3 (φ_l and Δp).
    """
    reference = _validate.floating("reference", reference, "[*B, T, 2]")
    offsets = _validate.floating("offsets", offsets, "[*B, T, N, L, P, 2]")
    _validate.minimum_rank("offsets", offsets, 5, "[*B, T, N, L, P, 2]")
    _validate.same_dtype(reference=reference, offsets=offsets)
    shapes = level_shapes(shapes)
    lead = offsets.shape[:-4]
    if offsets.shape[-3] != len(shapes) or offsets.shape[-1] != 2:
        raise ValueError(
            f"offsets must be [*B, T, N, L, P, 2] with L = {len(shapes)} levels, got shape "
            f"{list(offsets.shape)}"
        )
    if reference.shape == (*lead, 2):
        reference = reference[..., None, :]
    if reference.shape not in ((*lead, 1, 2), (*lead, len(shapes), 2)):
        raise ValueError(
            f"reference must be [*B, T, 2] = {[*lead, 2]} or [*B, T, L, 2] = "
            f"{[*lead, len(shapes), 2]}, got shape {list(reference.shape)}"
        )
    sizes = jnp.asarray([[width, height] for height, width in shapes], offsets.dtype)
    sizes = sizes.reshape((1,) * (offsets.ndim - 3) + (len(shapes), 1, 2))
    return reference[..., None, :, None, :] + offsets / sizes


def _pixels(place: Float[Array, "*B T P"], size: int) -> tuple[Array, Array]:
    """A coordinate in cells, and whether any cell is near; 0 where none is."""
    pixel = place * size - 0.5
    inside = (pixel >= -1) & (pixel < size)
    return jnp.where(inside, pixel, 0), inside


def _gather(cells: Float[Array, "*B S Hv"], index: Array) -> Float[Array, "*B T P Hv"]:
    """`cells[index]` along S."""
    flat = index.reshape(*index.shape[:-2], index.shape[-2] * index.shape[-1], 1)
    found = jnp.take_along_axis(cells, flat, axis=-2, mode="promise_in_bounds")
    return found.reshape(*index.shape, cells.shape[-1])
