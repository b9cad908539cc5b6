"""Tables of learned positions for another grid."""

import numpy as np
import pytest

from jaxattn.interop import resize_positions
from jaxattn.interop._positions import cubic

# torch.nn.functional.interpolate([1, 2, 4, 8, 16], size=3, mode="bicubic"), torch 2.14.
TORCH = [
    [1.2037037, 4.0, 13.7037037],
    [0.9212828, 1.3702624, 2.4620991, 4.0, 6.1574344, 11.7784257, 16.6297376],
]


def test_as_pytorch():
    rows = np.array([1.0, 2, 4, 8, 16])
    np.testing.assert_allclose(cubic(5, 3) @ rows, TORCH[0], rtol=1e-6)
    np.testing.assert_allclose(cubic(5, 7) @ rows, TORCH[1], rtol=1e-6)


def test_the_same_grid_is_the_same_table():
    table = np.random.default_rng(0).standard_normal((1 + 6, 4)).astype(np.float32)
    np.testing.assert_array_equal(resize_positions(table, (2, 3), (2, 3)), table)


def test_rows_and_columns_are_not_mixed():
    """What depends on rows only still does, and the class token stays."""
    rows = np.repeat(np.arange(4.0), 3)[:, None]
    table = np.concatenate([[[9.0]], rows])
    wide = resize_positions(table, (4, 3), (2, 5))
    assert wide.shape == (11, 1) and wide[0] == 9
    grid = wide[1:].reshape(2, 5)
    np.testing.assert_allclose(grid, grid[:, :1].repeat(5, axis=1), rtol=1e-12)
    assert grid[0, 0] + grid[1, 0] == pytest.approx(3) and grid[1, 0] > grid[0, 0] + 1.5


def test_other_tables():
    with pytest.raises(ValueError, match=r"\[1 \+ 2 \* 3, D\], got shape \[6, 4\]"):
        resize_positions(np.zeros((6, 4)), (2, 3), (4, 4))
