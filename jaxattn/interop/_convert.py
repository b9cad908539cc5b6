"""From their arrays to ours by a name map, and back. All that does not fit is listed at once.

Our parameters are `{dotted name: array or anything with a shape}`.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxattn.interop import _axes
from jaxattn.interop._names import Names, Row


class Pair(NamedTuple):
    """A row for one layer: the full name of their array, and of the parameters of ours."""

    row: Row
    theirs: str
    ours: tuple[str, ...]


def to_ours(
    tree: Mapping[str, Any],
    names: Names,
    parameters: Mapping[str, Any],
    *,
    prefix: str | None = None,
    ignore: tuple[str, ...] = (),
) -> dict[str, np.ndarray]:
    """Their arrays as our parameters.

    Args:
      tree: their arrays by name.
      names: a name map.
      parameters: ours by dotted name: arrays, or anything with a `shape`.
      prefix: of their names, instead of the map's.
      ignore: their arrays to leave out beside those that the map ignores, `*` for anything.

    Returns:
      an array for each of our parameters, in their dtype.

    Raises:
      ValueError: arrays that are missing, unknown or of another shape, all of them in one list.

    Example:
      >>> import numpy as np
      >>> from jaxattn.interop import names, to_ours
      >>> linear = names("weight kernel F D -> D F")
      >>> to_ours({"weight": np.ones((3, 2))}, linear, {"kernel": np.zeros((2, 3))})["kernel"].shape
      (2, 3)
    """
    tree = {name: as_array(name, x) for name, x in tree.items()}
    found, problems, used = {}, unnamed(names, parameters, prefix), set()
    for pair in pairs(names, parameters, prefix):
        used.add(pair.theirs)
        problem = misfit(pair, tree, parameters)
        if problem is None:
            found.update(taken(pair, tree[pair.theirs], parameters))
        else:
            problems.append(problem)
    problems += unknown(tree, used, names, prefix, ignore)
    if problems:
        listed = "\n  ".join(problems)
        raise ValueError(
            f"the tree does not fit the model, {len(problems)} problems:\n  {listed}\n"
            "make the model with the sizes and options of the tree, or name arrays that it "
            "does not need in ignore="
        )
    return found


def to_theirs(
    parameters: Mapping[str, Any], names: Names, *, prefix: str | None = None
) -> dict[str, np.ndarray]:
    """Our parameters as their arrays: `to_ours` backwards, exactly.

    Args:
      parameters: ours by dotted name.
      names: a name map.
      prefix: of their names, instead of the map's.

    Returns:
      their arrays by name, in our dtype.

    Raises:
      ValueError: the map has no name for some of the parameters; all of them in one list.

    Example:
      >>> import numpy as np
      >>> from jaxattn.interop import names, to_theirs
      >>> to_theirs({"kernel": np.zeros((2, 3))}, names("weight kernel F D -> D F"))["weight"].shape
      (3, 2)
    """
    problems = unnamed(names, parameters, prefix)
    if problems:
        listed = "\n  ".join(problems)
        raise ValueError(f"the map does not fit the model, {len(problems)} problems:\n  {listed}")
    return {pair.theirs: given(pair, parameters) for pair in pairs(names, parameters, prefix)}


def pairs(names: Names, parameters: Mapping[str, Any], prefix: str | None) -> Iterator[Pair]:
    """Every row that the model has parameters for, once for each layer."""
    for row in names.rows:
        for layer in layers(row.ours, parameters):
            ours = tuple(name.replace("*", layer) for name in row.ours)
            yield Pair(row, names.theirs(row.theirs, prefix).replace("*", layer), ours)


def layers(ours: tuple[str, ...], parameters: Mapping[str, Any]) -> list[str]:
    """What `*` stands for, in order; a single "" for a name without it that the model has."""
    found: dict[str, None] = {}
    for name in ours:
        pattern = re.compile(re.escape(name).replace(r"\*", r"(\d+)"))
        matches = (pattern.fullmatch(parameter) for parameter in parameters)
        found |= dict.fromkeys((match.groups() or ("",))[0] for match in matches if match)
    return sorted(found, key=lambda layer: int(layer or 0))


def taken(pair: Pair, x: np.ndarray, parameters: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Their array as ours, or as several of ours."""
    if pair.row.axes is None:
        return {pair.ours[0]: x}
    x = pair.row.axes.to_ours(x, our_shape(pair, parameters))
    return {pair.ours[0]: x} if len(pair.ours) == 1 else dict(zip(pair.ours, x, strict=True))


def given(pair: Pair, parameters: Mapping[str, Any]) -> np.ndarray:
    """Ours as their array."""
    parts = [np.asarray(parameters[name]) for name in pair.ours]
    x = parts[0] if len(parts) == 1 else np.stack(parts)
    return x if pair.row.axes is None else pair.row.axes.to_theirs(x)


def our_shape(pair: Pair, parameters: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of our side of the arrow, parts first."""
    shape = tuple(parameters[pair.ours[0]].shape)
    return shape if len(pair.ours) == 1 else (len(pair.ours), *shape)


def misfit(pair: Pair, tree: Mapping[str, np.ndarray], parameters: Mapping[str, Any]) -> str | None:
    """Why the pair cannot be copied, or None."""
    axes, joined = pair.row.axes, ", ".join(pair.ours)
    absent = [name for name in pair.ours if name not in parameters]
    if absent:
        return f"wrong options: {pair.theirs} is {joined}, and the model has no {', '.join(absent)}"
    shapes = {name: list(parameters[name].shape) for name in pair.ours}
    if len(set(map(tuple, shapes.values()))) > 1:
        return f"wrong options: {pair.theirs} has equal parts {joined}, the model has {shapes}"
    if axes is not None and len(axes.ours) != len(our_shape(pair, parameters)):
        return f"wrong shape: {joined} must have axes [{_axes.written(axes.ours)}], got {shapes}"
    shape = our_shape(pair, parameters)
    shape = shape if axes is None else axes.their_shape(shape)
    letters = "" if axes is None else f"[{_axes.written(axes.theirs)}] = "
    if pair.theirs not in tree:
        return f"missing: {pair.theirs} {letters}{list(shape)}, for {joined}"
    if tree[pair.theirs].shape != shape:
        found = list(tree[pair.theirs].shape)
        return f"wrong shape: {pair.theirs} must be {letters}{list(shape)}, got {found}"
    return None


def unnamed(names: Names, parameters: Mapping[str, Any], prefix: str | None) -> list[str]:
    """Our parameters that no row names, and rows that only a part of ours has."""
    named = {name for pair in pairs(names, parameters, prefix) for name in pair.ours}
    return [
        f"no name for: {name} {list(parameters[name].shape)}" for name in parameters.keys() - named
    ]


def unknown(
    tree: Mapping[str, np.ndarray],
    used: set[str],
    names: Names,
    prefix: str | None,
    ignore: tuple[str, ...],
) -> list[str]:
    """Their arrays that no parameter takes: those neither ignored nor a repetition."""
    tied = {names.theirs(a, prefix): names.theirs(b, prefix) for a, b in names.tied}
    patterns = [names.theirs(pattern, prefix) for pattern in names.ignored] + list(ignore)
    problems = []
    for name in tree.keys() - used:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if name not in tied:
            problems.append(f"unknown: {name} {list(tree[name].shape)}")
        elif not np.array_equal(tree[name], tree.get(tied[name], np.nan)):
            problems.append(f"wrong options: {name} differs from {tied[name]}, the model ties them")
    return sorted(problems)


def as_array(name: str, x: Any) -> np.ndarray:
    """A NumPy array, of what can be one."""
    try:
        return np.asarray(x)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{name} must convert to a NumPy array, got {type(x).__name__} ({error}); for torch "
            "give tensors of model.state_dict(), on the CPU, bfloat16 as .float()"
        ) from None
