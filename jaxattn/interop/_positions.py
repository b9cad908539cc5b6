"""Learned positions of a grid, for a grid of another size."""

from typing import Any

import numpy as np

SHARPNESS = -0.75  # of the cubic, as in PyTorch


def resize_positions(
    table: Any, grid: tuple[int, int], new_grid: tuple[int, int], *, first: int = 1
) -> np.ndarray:
    """A table of learned positions of a grid of patches, interpolated for another grid.

        out[i, j] = Σ_hw c(h - y_i) c(w - x_j) table[h, w],   y_i = (i + 1/2) height / new - 1/2

    with Keys' cubic c, a = -0.75; beyond the border stands the border. As DINOv2 does it for
    pictures of another size than it was trained on (PyTorch's bicubic, without antialiasing).

    Args:
      table: `[first + height·width, D]`, patches row by row.
      grid: (height, width) in patches.
      new_grid: likewise.
      first: number of tokens before the patches, whose rows stay: 1 for a class token.

    Returns:
      `[first + new height·new width, D]` in the table's dtype.

    Raises:
      ValueError: the table is not of this grid.

    Example:
      >>> import numpy as np
      >>> from jaxattn.interop import resize_positions
      >>> resize_positions(np.ones((1 + 37 * 37, 4)), (37, 37), (16, 16)).shape
      (257, 4)

    Source: Keys 1981, "Cubic convolution interpolation", equation 4; Oquab et al. 2024, "DINOv2".
    """
    table = np.asarray(table)
    (height, width), features = grid, table.shape[-1]
    if table.shape != (first + height * width, features):
        raise ValueError(
            f"table must be [first + height * width, D] = [{first} + {height} * {width}, D], got "
            f"shape {list(table.shape)}; drop leading axes of size 1"
        )
    patches = table[first:].reshape(height, width, features).astype(np.float64)
    rows, columns = (cubic(*sizes) for sizes in zip(grid, new_grid, strict=True))
    patches = np.einsum("ih,jw,hwd->ijd", rows, columns, patches, optimize=True)
    return np.concatenate([table[:first], patches.reshape(-1, features).astype(table.dtype)])


def cubic(size: int, new_size: int) -> np.ndarray:
    """`[new_size, size]`: how much of each old place is in each new one; rows sum to 1."""
    places = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    whole = np.floor(places).astype(int)
    weights = np.zeros((new_size, size))
    for offset in (-1, 0, 1, 2):
        near = np.clip(whole + offset, 0, size - 1)
        np.add.at(weights, (np.arange(new_size), near), keys(whole + offset - places))
    return weights


def keys(x: np.ndarray) -> np.ndarray:
    """Keys' cubic: 1 at 0, 0 at the other integers and beyond ±2."""
    x, a = np.abs(x), SHARPNESS
    near = ((a + 2) * x - (a + 3)) * x**2 + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
