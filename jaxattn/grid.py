"""Attention on images: each place attends to its row, its column, or its neighbourhood.

Arrays keep the image's two axes, `[*B, height, width, N, H]`. Other letters: see `jaxattn._typing`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Float
from jaxattn.dispatch import attention
from jaxattn.masks import Neighbourhood

LETTERS = "[*B, height, width, N, H]"


def row_attention(
    query: Float[Array, "*B height width N H"],
    key: Float[Array, "*B height width K H"],
    value: Float[Array, "*B height width K Hv"],
    **options: Any,
) -> Float[Array, "*B height width N Hv"]:
    """Axial attention along rows: each place attends to the places of its row.

    On the flattened image it is `jaxattn.attention` with `mask=Block(width)`, at the cost of
    height · width² pairs. With `column_attention` after it every place reaches every other.

    Args:
      query: `[*B, height, width, N, H]`.
      key: `[*B, height, width, K, H]`.
      value: `[*B, height, width, K, Hv]`.
      options: of `jaxattn.attention`, for T = S = width, with *B and height as batch axes.

    Returns:
      `[*B, height, width, N, Hv]`.

    Raises:
      TypeError, ValueError: as `jaxattn.attention`; fewer than four axes.

    Example:
      >>> import jax
      >>> from jaxattn import row_attention
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 4, 6, 2, 8))
      >>> row_attention(query, key, value).shape
      (4, 6, 2, 8)

    Source: Ho et al. 2019, "Axial attention in multidimensional transformers".
    """
    return attention(*images(query, key, value), **options)


def column_attention(
    query: Float[Array, "*B height width N H"],
    key: Float[Array, "*B height width K H"],
    value: Float[Array, "*B height width K Hv"],
    **options: Any,
) -> Float[Array, "*B height width N Hv"]:
    """Axial attention along columns: each place attends to the places of its column.

    On the flattened image it is `jaxattn.attention` with `mask=Dilated(width)`.

    Args: as in `row_attention`; options for T = S = height, with *B and width as batch axes.

    Returns:
      `[*B, height, width, N, Hv]`.

    Raises:
      TypeError, ValueError: as `jaxattn.attention`; fewer than four axes.

    Example:
      >>> import jax
      >>> from jaxattn import column_attention
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 4, 6, 2, 8))
      >>> column_attention(query, key, value).shape
      (4, 6, 2, 8)

    Source: Ho et al. 2019, "Axial attention in multidimensional transformers".
    """
    turned = (jnp.swapaxes(x, -4, -3) for x in images(query, key, value))
    return jnp.swapaxes(attention(*turned, **options), -4, -3)


def neighbourhood_attention(
    query: Float[Array, "*B height width N H"],
    key: Float[Array, "*B height width K H"],
    value: Float[Array, "*B height width K Hv"],
    *,
    window: int | tuple[int, int],
    **options: Any,
) -> Float[Array, "*B height width N Hv"]:
    """Each place attends to a window of places around it, which shifts at the borders.

    `jaxattn.attention` on the flattened image, with `mask=Neighbourhood(height, width, window)`.

    Args:
      query: `[*B, height, width, N, H]`.
      key: `[*B, height, width, K, H]`.
      value: `[*B, height, width, K, Hv]`.
      window: an odd number, or (window_y, window_x); at most height and width.
      options: of `jaxattn.attention` besides the mask, for T = S = height · width.

    Returns:
      `[*B, height, width, N, Hv]`.

    Raises:
      TypeError, ValueError: as `jaxattn.attention` and `jaxattn.masks.Neighbourhood`.

    Example:
      >>> import jax
      >>> from jaxattn import neighbourhood_attention
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 4, 6, 2, 8))
      >>> neighbourhood_attention(query, key, value, window=3).shape
      (4, 6, 2, 8)

    Source: Hassani et al. 2023, "Neighborhood attention transformer", section 3.1.
    """
    query, key, value = images(query, key, value)
    height, width = query.shape[-4:-2]
    flat = (x.reshape(*x.shape[:-4], height * width, *x.shape[-2:]) for x in (query, key, value))
    out = attention(*flat, mask=Neighbourhood(height, width, window), **options)
    return out.reshape(*query.shape[:-1], out.shape[-1])


class GridCost(NamedTuple):
    """What attention over all places of a feature map costs, for one head."""

    tokens: int
    pairs: int


def grid_cost(height: int, width: int, stride: int) -> GridCost:
    """Tokens of an image's feature map, and pairs of full attention over it.

    A stride four times smaller makes 16 times the tokens and 256 times the pairs: networks for
    large images attend where the stride is large.

    Args:
      height: of the image, in pixels.
      width: likewise.
      stride: pixels from one place of the feature map to the next; divides both.

    Returns:
      `GridCost(tokens, pairs)`, tokens² pairs.

    Raises:
      TypeError: a number is no integer.
      ValueError: the image is smaller than the stride, or no multiple of it.

    Example:
      >>> from jaxattn import grid_cost
      >>> print(grid_cost(640, 640, stride=32), grid_cost(640, 640, stride=8))
      GridCost(tokens=400, pairs=160000) GridCost(tokens=6400, pairs=40960000)

    Source: counting.
    """
    if _validate.integer("stride", stride) < 1:
        raise ValueError(f"stride must be at least 1, got {stride}")
    for name, size in (("height", height), ("width", width)):
        if _validate.integer(name, size) < stride or size % stride:
            raise ValueError(
                f"{name} must be a multiple of the stride {stride} and at least one, got {size}; "
                "pad or crop the image"
            )
    tokens = (height // stride) * (width // stride)
    return GridCost(tokens, tokens**2)


def images(query: Any, key: Any, value: Any) -> list[Array]:
    """Three arrays with the same two image axes."""
    named = {"query": query, "key": key, "value": value}
    arrays = {name: _validate.floating(name, x, LETTERS) for name, x in named.items()}
    for name, x in arrays.items():
        _validate.minimum_rank(name, x, 4, LETTERS)
    for axis, letter in ((-4, "height"), (-3, "width")):
        sizes = {name: x.shape[axis] for name, x in arrays.items()}
        _validate.equal_axis(sizes, letter, f"the layout is {LETTERS}")
    return list(arrays.values())
