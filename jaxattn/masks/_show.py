"""A picture of a mask: which pairs are allowed, and which tiles cost what."""

import textwrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxattn import _validate
from jaxattn.masks._base import Mask, alignment_offset
from jaxattn.masks._tiles import Blocks, occupied

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER, ALLOWED, LINE = "#f7f5f0", "#24476b", "#8a8577"
MIXED, FULL = "#f2cf8f", "#3f7d58"
TITLE_WIDTH = 56


class Picture(NamedTuple):
    """What is drawn: the pairs `[T, S]`, and of each tile 0 if empty, 1 if mixed, 2 if full."""

    pairs: np.ndarray
    kinds: np.ndarray | None
    tile: tuple[int, int]


def show(
    mask: Mask,
    queries: int,
    keys: int | None = None,
    *,
    tile: int | tuple[int, int] | None = None,
    entry: tuple[int, ...] | None = None,
    title: str | None = None,
) -> "Figure":
    """Draw a mask: queries from top to bottom, keys from left to right, allowed pairs dark.

    With `tile`, the grid of tiles lies over it: an empty tile is blank and costs nothing, a mixed
    one has an orange ground and is masked pair by pair, a full one is green and not masked at all.

    Args:
      mask: a `Mask`.
      queries: T, at their default positions.
      keys: S; default T.
      tile: queries and keys in a tile; one number for both, None for no grid.
      entry: where the mask has axes of its own before `[T, S]` (examples, heads): which entry;
        default the first.
      title: default the mask's `repr`.

    Returns:
      a `matplotlib.figure.Figure`, which notebooks display and `figure.savefig(path)` writes.

    Raises:
      ImportError: matplotlib is not installed.
      ValueError: T or S is 0; T ≠ S, and a mask of order in it says no `align`; a tile below
        1; an entry that the mask does not have.

    Example:
      >>> from jaxattn.masks import Causal, SlidingWindow, show
      >>> figure = show(Causal() & SlidingWindow(left=40, right=0), 64, tile=16)
      >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
      ['6 empty tiles', '7 mixed', '3 full']
    """
    keys = queries if keys is None else keys
    if min(queries, keys) < 1:
        raise ValueError(
            f"show needs at least one query and one key, got T = {queries}, S = {keys}"
        )
    sizes = _tile_sizes(tile)
    picture = picture_of(mask, queries, keys, sizes, entry)
    axes = _new_axes(queries, keys)
    _draw(axes, picture)
    if picture.kinds is not None:
        _count_tiles(axes, picture.kinds)
    _label(axes, queries, keys, repr(mask) if title is None else title)
    return axes.figure  # pyright: ignore[reportReturnType]


def picture_of(
    mask: Mask, queries: int, keys: int, tile: tuple[int, int] | None, entry: tuple[int, ...] | None
) -> Picture:
    """The pairs of one entry of the mask, and what its `tiles` say, as NumPy arrays."""
    pairs = np.asarray(mask.dense(queries, keys))
    leading = pairs.shape[:-2]
    entry = (0,) * len(leading) if entry is None else tuple(entry)
    if len(entry) != len(leading) or not all(
        0 <= i < n for i, n in zip(entry, leading, strict=True)
    ):
        raise ValueError(
            f"entry must choose one of the mask's leading axes {list(leading)}, got {entry}"
        )
    if tile is None:
        return Picture(pairs[entry], None, (queries, keys))
    offset, batch = alignment_offset(mask, queries, keys), len(leading[:-1])
    blocks = _blocks(queries, tile[0], offset, batch), _blocks(keys, tile[1], 0, batch)
    here, said = occupied(*blocks), mask.tiles(*blocks)
    full = here.certain & np.asarray(said.certain)
    kinds = np.where(here.possible & np.asarray(said.possible), np.where(full, 2, 1), 0)
    chosen = tuple(min(i, n - 1) for i, n in zip(entry, kinds.shape[:-2], strict=False))
    return Picture(pairs[entry], kinds[chosen], tile)


def _blocks(size: int, block: int, offset: int, batch: int) -> Blocks:
    count = -(-size // block)
    index = np.arange(count * block, dtype=np.int32)
    positions = np.where(index < size, np.maximum(index + offset, -1), -1).astype(np.int32)
    return Blocks(positions.reshape((1,) * batch + (count, block)))


def _tile_sizes(tile: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if tile is None:
        return None
    rows, columns = tile if isinstance(tile, tuple) else (tile, tile)
    if min(_validate.integer("tile", rows), _validate.integer("tile", columns)) < 1:
        raise ValueError(f"tile must be at least 1, got {tile}")
    return rows, columns


def _new_axes(queries: int, keys: int) -> "Axes":
    """Axes of a new figure that no window or notebook keeps open, as tall as the mask is."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "jaxattn.masks.show draws with matplotlib, which is not installed: "
            "pip install matplotlib; mask.dense(T, S) is the same picture as an array"
        ) from error
    width = 5.0
    height = width * min(max(queries / keys, 0.2), 2.0)
    figure = Figure(figsize=(width + 0.8, height + 1.3), dpi=150, layout="constrained")
    return figure.add_subplot()


def _colours(picture: Picture) -> np.ndarray:
    """The colour of every pair `[T, S, 3]`: by the kind of its tile, and whether it is allowed."""
    (rows, columns), (queries, keys) = picture.tile, picture.pairs.shape
    kinds = np.ones((1, 1), int) if picture.kinds is None else picture.kinds
    kind = kinds[np.arange(queries)[:, None] // rows, np.arange(keys)[None, :] // columns]
    # An empty tile that held an allowed pair would be a defect: let it glare.
    blank = PAPER if picture.kinds is None else MIXED
    palette = np.array([[PAPER, "#ff0000"], [blank, ALLOWED], [PAPER, FULL]])
    channels = [[[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in pair] for pair in palette]
    return np.array(channels, np.uint8)[kind, picture.pairs.astype(int)]


def _draw(axes: "Axes", picture: Picture) -> None:
    """The pairs, and lines between tiles (between pairs where there are few)."""
    queries, keys = picture.pairs.shape
    axes.imshow(
        _colours(picture),
        extent=(0, keys, queries, 0),
        aspect="equal" if 0.2 <= queries / keys <= 2 else "auto",
        interpolation="nearest",
    )
    if max(queries, keys) <= 40:
        _lines(axes, picture.pairs.shape, (1, 1), "white", 0.5)
    if picture.kinds is not None:
        _lines(axes, picture.pairs.shape, picture.tile, LINE, 0.7)


def _lines(
    axes: "Axes", shape: tuple[int, ...], step: tuple[int, int], colour: str, width: float
) -> None:
    queries, keys = shape
    axes.hlines(range(step[0], queries, step[0]), 0, keys, color=colour, linewidth=width)
    axes.vlines(range(step[1], keys, step[1]), 0, queries, color=colour, linewidth=width)


def _count_tiles(axes: "Axes", kinds: np.ndarray) -> None:
    from matplotlib.patches import Patch

    empty, mixed, full = (int((kinds == kind).sum()) for kind in (0, 1, 2))
    names = {f"{empty} empty tiles": PAPER, f"{mixed} mixed": MIXED, f"{full} full": FULL}
    handles = [Patch(facecolor=c, edgecolor=LINE, label=name) for name, c in names.items()]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01)}
    axes.legend(handles=handles, ncols=3, frameon=False, fontsize=8, **place)


def _label(axes: "Axes", queries: int, keys: int, title: str) -> None:
    axes.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=9, family="monospace", pad=10)
    axes.set_xlabel(f"key position, S = {keys}", fontsize=8)
    axes.set_ylabel(f"query, T = {queries}", fontsize=8)
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    axes.tick_params(length=2, labelsize=7, color=LINE)
    axes.spines[:].set_color(LINE)
