"""The door of deformable attention: arguments in, checked, or an error. No maths.

Letters: as in `jaxattn.deformable`.
"""

from typing import Any, NamedTuple

from jaxattn import _validate
from jaxattn._one_head import present
from jaxattn._typing import Array

Shapes = tuple[tuple[int, int], ...]


class Entered(NamedTuple):
    """Valid arguments; `present` says which values take part, None for all."""

    value: Array
    shapes: Shapes
    locations: Array
    weights: Array
    present: Array | None


def enter(value: Any, shapes: Any, locations: Any, weights: Any, mask: Any) -> Entered:
    """Arguments of `deformable_attention`, checked."""
    letters = {"value": "[*B, S, N, Hv]", "locations": "[*B, T, N, L, P, 2]"}
    letters["weights"] = "[*B, T, N, L, P]"
    arrays = {"value": value, "locations": locations, "weights": weights}
    arrays = {name: _validate.floating(name, x, letters[name]) for name, x in arrays.items()}
    for name, rank in (("value", 3), ("locations", 5), ("weights", 4)):
        _validate.minimum_rank(name, arrays[name], rank, letters[name])
    _validate.same_dtype(**arrays)
    value, locations, weights = arrays.values()
    shapes = level_shapes(shapes)
    cells = sum(height * width for height, width in shapes)
    if cells != value.shape[-3]:
        raise ValueError(
            f"value [*B, S, N, Hv] must have one entry for each cell of the levels, S = {cells} "
            f"for shapes {shapes}, got S = {value.shape[-3]} (value {list(value.shape)}); the "
            "levels are flattened row by row and put one behind the other"
        )
    batch, heads = value.shape[:-3], value.shape[-2]
    wanted = (*batch, locations.shape[-5], heads, len(shapes), locations.shape[-2], 2)
    if locations.shape != wanted:
        raise ValueError(
            f"locations must be [*B, T, N, L, P, 2] with *B = {list(batch)}, N = {heads}, L = "
            f"{len(shapes)}, got shape {list(locations.shape)}"
        )
    if weights.shape != locations.shape[:-1]:
        raise ValueError(
            f"weights must be [*B, T, N, L, P] = {list(locations.shape[:-1])}, got shape "
            f"{list(weights.shape)}; one for each location"
        )
    return Entered(value, shapes, locations, weights, present(mask, value.shape[:-2]))


def level_shapes(shapes: Any) -> Shapes:
    """(height, width) of each level, positive integers."""
    try:
        pairs = [tuple(_validate.integer("shapes", size) for size in shape) for shape in shapes]
    except TypeError:
        pairs = []
    if not pairs or any(len(pair) != 2 or min(pair) < 1 for pair in pairs):
        raise ValueError(
            f"shapes must be (height, width) of each level, positive integers known before the "
            f"program runs, for example ((32, 32), (16, 16)), got {shapes!r}"
        )
    return tuple((pair[0], pair[1]) for pair in pairs)
