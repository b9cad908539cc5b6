"""Neighbourhood attention: a window on a grid whose tokens are flattened row by row."""

from typing import Any, NamedTuple

from jaxattn._typing import Array
from jaxattn.masks._base import Mask, mask_class
from jaxattn.masks._periodic import check_positive
from jaxattn.masks._tiles import Blocks, Tiles, columns, rows


@mask_class(static=("height", "width", "window"))
class Neighbourhood(Mask):
    """A window on a grid of height × width tokens: position p stands at row p // width, column
    p % width, and a query at (y, x) attends to the keys at (y', x') with

        a(y) ≤ y' < a(y) + window_y,   a(y) = clip(y - ⌊window_y / 2⌋, 0, height - window_y)

    and likewise in x. At a border the window does not shrink but shifts, so that every query keeps
    exactly window_y · window_x keys. Positions beyond the grid belong to no neighbourhood.

    Args:
      height: rows of the grid.
      width: columns of the grid.
      window: an odd number, or two, (window_y, window_x); at most height and width.

    Raises:
      TypeError: a number is no integer.
      ValueError: a window is even or larger than the grid, or (when used) there are more default
        positions than the grid has.

    Example:
      >>> from jaxattn.masks import Neighbourhood
      >>> corner = Neighbourhood(height=3, width=4, window=3).dense(12)[0]
      >>> print(corner.reshape(3, 4).astype(int))
      [[1 1 1 0]
       [1 1 1 0]
       [1 1 1 0]]

    Source: Hassani et al. 2023, "Neighborhood attention transformer", section 3.1.
    """

    height: int
    width: int
    window: int | tuple[int, int]
    reflexive = True

    def __post_init__(self) -> None:
        check_positive("height", self.height)
        check_positive("width", self.width)
        if isinstance(self.window, list):
            object.__setattr__(self, "window", tuple(self.window))
        if isinstance(self.window, tuple) and len(self.window) != 2:
            raise ValueError(f"window must be a number or (window_y, window_x), got {self.window}")
        for name, axis in zip(("height", "width"), self._axes(), strict=True):
            check_positive("window", axis.window)
            if axis.window % 2 == 0 or axis.window > axis.size:
                raise ValueError(
                    f"window must be odd and at most {name} = {axis.size}, got {axis.window}; it "
                    "is centred on the query, and every query keeps all of its keys"
                )

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """All default positions lie on the grid."""
        for name, needed in (("queries", queries), ("keys", keys)):
            if needed is not None and needed > self.height * self.width:
                raise ValueError(
                    f"{self!r} has height · width = {self.height * self.width} positions, got "
                    f"{needed} {name}; tokens beside the grid are positions beyond it, which other "
                    "masks may allow: pass query_positions and key_positions"
                )

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The key lies in the query's window, on the grid."""
        allowed = query_positions < self.height * self.width
        for axis in self._axes():
            start = axis.start(axis.of(query_positions))
            key = axis.of(key_positions)
            allowed = allowed & (start <= key) & (key < start + axis.window)
        return allowed

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """From the least and the largest row and column of each block."""
        count = self.height * self.width
        possible = rows(queries.low < count) & columns(keys.low < count)
        certain = rows(queries.high < count) & columns(keys.high < count)
        for axis in self._axes():
            first, last = map(axis.start, axis.span(queries))
            low, high = axis.span(keys)
            meets = (rows(first) <= columns(high)) & (columns(low) < rows(last + axis.window))
            inside = (rows(last) <= columns(low)) & (columns(high) < rows(first + axis.window))
            possible, certain = possible & meets, certain & inside
        return Tiles(possible, certain)

    def _axes(self) -> tuple["_Axis", "_Axis"]:
        window = self.window if isinstance(self.window, tuple) else (self.window, self.window)
        return _Axis(self.height, window[0], self.width, True), _Axis(
            self.width, window[1], self.width, False
        )


class _Axis(NamedTuple):
    """Rows or columns of the grid."""

    size: int
    window: int
    width: int
    is_row: bool

    def of(self, positions: Any) -> Any:
        """The row or the column of each position."""
        return positions // self.width if self.is_row else positions % self.width

    def span(self, blocks: Blocks) -> tuple[Any, Any]:
        """The least and the largest in each block."""
        return blocks.span(self.of(blocks.positions))

    def start(self, place: Any) -> Any:
        """Where the window of a query begins."""
        return (place - self.window // 2).clip(0, self.size - self.window)
