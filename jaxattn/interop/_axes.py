"""Axes of two arrays with the same numbers, side by side: `(N H) D -> D N H`.

A group in brackets is one axis, its last letter runs fastest; `1` is an axis of size 1 that the
other side lacks. Only reshapes and transposes: no number changes.
"""

import math
import re
from typing import NamedTuple

import numpy as np

Side = tuple[tuple[str, ...], ...]


class Axes(NamedTuple):
    """Both sides of an arrow; each axis is a group of letters."""

    theirs: Side
    ours: Side

    def sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        """The size of each letter, from the shape of our array."""
        return {group[0]: size for group, size in zip(self.ours, shape, strict=True)}

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of their array, from that of ours."""
        sizes = self.sizes(shape)
        return tuple(math.prod(sizes[letter] for letter in group) for group in self.theirs)

    def to_ours(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Their array as ours, whose shape is given."""
        sizes, letters = self.sizes(shape), flat(self.theirs)
        order = [letters.index(letter) for letter in flat(self.ours)]
        return x.reshape([sizes[letter] for letter in letters]).transpose(order).reshape(shape)

    def to_theirs(self, x: np.ndarray) -> np.ndarray:
        """Our array as theirs."""
        letters = flat(self.ours)
        order = [letters.index(letter) for letter in flat(self.theirs)]
        return x.transpose(order).reshape(self.their_shape(x.shape))


def parsed(text: str) -> Axes:
    """`(N H) D -> D N H` as `Axes`.

    Raises:
      ValueError: the sides have different letters, or ours has a group.
    """
    sides = [
        tuple(tuple((group or letter).replace("1", "").split()) for group, letter in found)
        for found in (re.findall(r"\(([^)]*)\)|(\S+)", side) for side in text.split("->"))
    ]
    if len(sides) != 2 or sorted(flat(sides[0])) != sorted(flat(sides[1])):
        raise ValueError(f"axes must be `theirs -> ours` with the same letters, got {text!r}")
    if any(len(group) != 1 for group in sides[1]):
        raise ValueError(f"our side has one letter for each axis, got {text!r}")
    return Axes(*sides)


def written(side: Side) -> str:
    """A side as text, for messages."""
    groups = (" ".join(group) or "1" for group in side)
    return " ".join(f"({group})" if " " in group else group for group in groups)


def flat(side: Side) -> list[str]:
    """All letters of a side, in order."""
    return [letter for group in side for letter in group]
