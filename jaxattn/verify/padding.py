"""Padding: what nobody may attend to changes nothing, NaN and infinity in it included.

Not in values and not in derivatives. A select on the scores alone leaves 0 * NaN = NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .problem import EMPTY_ROWS, Problem, with_empty_rows, with_inputs, with_mask
from .subject import Subject, run, run_on
from .tolerances import DERIVATIVE, EXACT, VALUE

PADDED_KEYS = [3, 7, 12]


def derivatives(subject: Subject, given: Problem, third: bool = False) -> Iterator[tuple[str, Any]]:
    """(name, arrays) for the value and each derivative that the subject claims."""
    yield "out", (run_on(subject, calculus.value, given),)
    if "vjp" in subject.features:
        yield "gradient", run_on(subject, calculus.pull, given, given.cotangent)
    if "jvp" in subject.features:
        yield "tangent", (run_on(subject, calculus.push, given, given.tangent),)
    directions = (given.tangent, given.cotangent)
    if "second_order" in subject.features:
        yield "Hessian product", run_on(subject, calculus.forward_over_reverse, given, *directions)
    if third and "third_order" in subject.features:
        yield "third derivative", run_on(subject, calculus.third, given, *directions)


def padding_poison(subject: Subject, given: Problem) -> Measurement:
    """NaN or inf in keys and values that no query may attend to changes nothing, bit for bit.

    Value, gradient, tangent and Hessian product; 0 * NaN = NaN, so a select on the scores alone
    does not do. The keys' own gradients are 0 there.

    NaN in a padded k_j, v_j changes nothing. Kills nan_from_padding.
    """
    mask = given.mask.copy()
    mask[:, PADDED_KEYS] = False
    clean = with_mask(given, mask)
    base = dict(derivatives(subject, clean))
    found = []
    for poison in (np.nan, np.inf):
        key, value = (_poisoned(array, PADDED_KEYS, poison) for array in (given.key, given.value))
        for what, kinds in (("keys", {"key": key}), ("values", {"value": value})):
            found += _unchanged(
                f"{poison} in padded {what}", subject, with_inputs(clean, **kinds), base
            )
    return worst(found)


def query_poison(subject: Subject, given: Problem) -> Measurement:
    """NaN or inf in a query that may attend to nothing changes nothing, bit for bit.

    NaN in an empty row's q_i changes nothing. Kills nan_from_empty_query.
    """
    clean = with_empty_rows(given)
    base = dict(derivatives(subject, clean))
    found = []
    for poison in (np.nan, np.inf):
        dirty = with_inputs(clean, query=_poisoned(given.query, EMPTY_ROWS, poison))
        found += _unchanged(f"{poison} in queries of empty rows", subject, dirty, base)
    return worst(found)


def third_order_poison(subject: Subject, given: Problem) -> Measurement:
    """The same in the third derivative, padded keys and empty queries at once. Bit for bit.

    NaN in padding, third derivative. Kills nan_from_padding.
    """
    mask = given.mask.copy()
    mask[:, PADDED_KEYS], mask[EMPTY_ROWS] = False, False
    clean = with_mask(given, mask)
    query, key, value = (
        _poisoned(array, places, np.nan)
        for array, places in zip(given.x, (EMPTY_ROWS, PADDED_KEYS, PADDED_KEYS), strict=True)
    )
    dirty = with_inputs(clean, query=query, key=key, value=value)
    base = {name: arrays for name, arrays in derivatives(subject, clean, third=True)}
    got = run_on(subject, calculus.third, dirty, dirty.tangent, dirty.cotangent)
    return compare_all(
        "NaN in padding, third derivative", got, base["third derivative"], given, EXACT
    )


def appended_padding(subject: Subject, given: Problem) -> Measurement:
    """Keys appended and hidden from all change no row (900 u); their gradients are exactly 0.

    hidden keys after the others change nothing. Kills padding_in_denominator.
    """
    return _padded(subject, given, before=0, after=8)


def tile_invariance(subject: Subject, given: Problem) -> Measurement:
    """Hidden keys put before the others move every border between tiles, and change nothing.

    900 u. At 5 and 130 keys, so that a row's keys fall into other tiles, whatever their size.

    hidden keys before the others change nothing. Kills last_tile_dropped.
    """
    return worst(_padded(subject, given, before=before, after=2) for before in (5, 130))


def _padded(subject: Subject, given: Problem, before: int, after: int) -> Measurement:
    generator = np.random.default_rng(given.seed)

    def pad(array: np.ndarray) -> np.ndarray:
        sizes = [(*array.shape[:-3], length, *array.shape[-2:]) for length in (before, after)]
        front, back = (generator.standard_normal(size).astype(array.dtype) for size in sizes)
        return np.concatenate([front, array, back], axis=-3)

    mask = np.pad(given.mask, ((0, 0), (before, after)))
    x = (given.query, pad(given.key), pad(given.value))
    out = run(subject, calculus.value, x, mask=mask)
    found = [compare("out", out, run_on(subject, calculus.value, given), given, VALUE)]
    if "vjp" in subject.features:
        padded = run(subject, calculus.pull, x, given.cotangent, mask=mask)
        inner = slice(before, before + given.shape.S)
        cut = (padded[0], padded[1][..., inner, :, :], padded[2][..., inner, :, :])
        expected = run_on(subject, calculus.pull, given, given.cotangent)
        found.append(compare_all("gradient", cut, expected, given, DERIVATIVE))
        hidden = np.delete(padded[1], np.arange(before, before + given.shape.S), axis=-3)
        found.append(compare("key gradient of padding", hidden, 0.0, given, EXACT, 1.0))
    return worst(found)


def _poisoned(array: np.ndarray, places: list[int], poison: float) -> np.ndarray:
    changed = np.array(array)
    changed[..., places, :, :] = poison
    return changed


def _unchanged(
    what: str, subject: Subject, dirty: Problem, base: dict[str, Any]
) -> list[Measurement]:
    return [
        compare_all(f"{what}, {name}", arrays, base[name], dirty, EXACT)
        for name, arrays in derivatives(subject, dirty)
    ]


FAULT = "lets padding through: NaN in what nobody may attend to reaches results"
CHECKS = (
    Check(
        padding_poison,
        "NaN in a padded k_j, v_j changes nothing",
        "nan_from_padding",
        ("padding",),
        fault=FAULT,
    ),
    Check(
        query_poison,
        "NaN in an empty row's q_i changes nothing",
        "nan_from_empty_query",
        ("padding", "empty_rows"),
        fault=FAULT,
    ),
    Check(
        third_order_poison,
        "NaN in padding, third derivative",
        "nan_from_padding",
        ("padding", "empty_rows", "third_order"),
        once=True,
        quick=False,
        fault=FAULT,
    ),
    Check(
        appended_padding,
        "hidden keys after the others change nothing",
        "padding_in_denominator",
        ("mask", "cross"),
        once=True,
    ),
    Check(
        tile_invariance,
        "hidden keys before the others change nothing",
        "last_tile_dropped",
        ("mask", "cross", "lengths"),
        once=True,
        quick=False,
    ),
)
