"""Short problems for transformations, which do not depend on size."""

from __future__ import annotations

import numpy as np

from .problem import Problem, other, with_mask


def small_problem(given: Problem) -> Problem:
    """Four tokens."""
    return _of_length(given, 4)


def tiny_problem(given: Problem) -> Problem:
    """Three tokens, for whole Jacobians and Hessians."""
    return _of_length(given, 3)


def _of_length(given: Problem, length: int) -> Problem:
    """A short problem without holes in its mask, so that most rows have several keys."""
    drawn = other(given, batch=(1,), T=length, S=length)
    whole = np.ones((length, length), bool)
    return with_mask(drawn, whole if given.masking == "none" else np.tril(whole))
