"""Two arrays in, one measurement out: the worst error, where it is, and what was allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .problem import UNIT_ROUNDOFF, Problem
from .tolerances import EXACT, Tolerance


@dataclass(frozen=True)
class Measurement:
    """What one check found: `error` against `tolerance` at the worst place."""

    what: str
    error: float
    tolerance: float
    reason: str
    expected: float
    got: float
    where: str

    @property
    def passed(self) -> bool:
        """Within the tolerance; never for a NaN."""
        return self.error <= self.tolerance

    @property
    def ratio(self) -> float:
        """Error in units of the tolerance; infinite for a broken exact property."""
        if self.passed:
            return self.error / self.tolerance if self.tolerance > 0 else 0.0
        return self.error / self.tolerance if self.tolerance > 0 else np.inf


def compare(
    what: str,
    got: Any,
    expected: Any,
    given: Problem,
    tolerance: Tolerance,
    scale: float | None = None,
) -> Measurement:
    """max |got - expected| / scale against the tolerance; scale is max |expected| by default.

    Equal infinities are equal; a NaN that was not expected is an infinite error.
    """
    left, right = np.broadcast_arrays(_wide(got), _wide(expected))
    if left.size == 0:
        return Measurement(what, 0.0, 0.0, tolerance.reason, 0.0, 0.0, "nowhere: no elements")
    finite = np.abs(right[np.isfinite(right)])
    size = scale if scale is not None else float(finite.max(initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(left == right, 0.0, np.abs(left - right)) / (size if size > 0 else 1.0)
    error = np.where(np.isnan(error), np.inf, error)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    return Measurement(
        what=what,
        error=float(error[worst]),
        tolerance=_allowed(given, tolerance),
        reason=tolerance.reason,
        expected=float(right[worst]),
        got=float(left[worst]),
        where=str([int(index) for index in worst]) if worst else "a scalar",
    )


def compare_all(
    what: str,
    got: Sequence[Any],
    expected: Sequence[Any],
    given: Problem,
    tolerance: Tolerance,
    names: Sequence[str] = ("query", "key", "value", "fourth argument"),
) -> Measurement:
    """The worst of several comparisons, one an argument, on the scale of the largest of all.

    One scale for all: a derivative in one argument that happens to vanish has no size of its own.
    """
    scale = max((float(np.abs(_wide(right)).max(initial=0.0)) for right in expected), default=0.0)
    return worst(
        compare(f"{what} ({name})", left, right, given, tolerance, scale)
        for name, left, right in zip(names, got, expected, strict=False)
    )


def bounded(
    what: str, error: float, limit: float, reason: str, got: float, expected: float
) -> Measurement:
    """A measurement of a single number against a limit of its own."""
    return Measurement(what, float(error), float(limit), reason, float(expected), float(got), "all")


def worst(measurements: Iterable[Measurement]) -> Measurement:
    """The measurement furthest beyond, or nearest to, its tolerance."""
    return max(measurements, key=lambda measurement: (not measurement.passed, measurement.ratio))


def _allowed(given: Problem, tolerance: Tolerance) -> float:
    """The tolerance as a number. Exact stays exact, unless a wider unit than the dtype's own is
    assumed (to ask whether low inner precision alone explains a failure)."""
    if tolerance is EXACT and given.unit > UNIT_ROUNDOFF[given.dtype.name]:
        return 8 * given.unit
    return tolerance.multiple * given.unit


def _wide(array: Any) -> np.ndarray:
    return np.asarray(array).astype(np.float64)
