"""Structure: who may see whom, held exactly, in values and in every derivative.

A gradient check cannot see a mask that is wrong in the same way forward and backward; these can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, bounded, compare, worst
from .problem import Problem, with_inputs
from .subject import Subject, run, run_on
from .tolerances import EXACT, VALUE


def row_gradients(subject: Subject, given: Problem) -> Iterator[tuple[int, Any]]:
    """(i, gradients of <e_i, out_i>) for every query row i: the rows of the Jacobian."""
    for row in range(given.shape.T):
        cotangent = _only(given.cotangent, row)
        yield row, run_on(subject, calculus.pull, given, cotangent)


def zeros_in_reverse(subject: Subject, given: Problem) -> Measurement:
    """d out_i / d key_j = d out_i / d value_j = 0, exactly, where j is hidden from i; by vjp.

    A hidden weight is 0.

    ∂out_i/∂k_j = ∂out_i/∂v_j = 0 for hidden j. Kills causal_off_by_one.
    """
    return worst(
        _hidden_zero(f"gradient of row {row}", gradients, row, given)
        for row, gradients in row_gradients(subject, given)
    )


def zeros_in_forward(subject: Subject, given: Problem) -> Measurement:
    """The same by jvp: a tangent in key_j and value_j moves no row that j is hidden from.

    Exact: a hidden weight is 0, and no arithmetic makes it anything else.

    hidden k̇_j, v̇_j give out˙_i = 0. Kills causal_off_by_one.
    """
    found = []
    for column in range(given.shape.S):
        dx = (np.zeros_like(given.query), *(_only(array, column) for array in given.tangent[1:]))
        moved = run_on(subject, calculus.push, given, dx)[..., ~given.mask[:, column], :, :]
        found.append(
            compare(f"tangent of rows that do not see key {column}", moved, 0.0, given, EXACT, 1.0)
        )
    return worst(found)


def zeros_in_hessian(subject: Subject, given: Problem) -> Measurement:
    """The same in the second derivative: the Hessian of <e_i, out_i> has no entry at a hidden j.

    Exact, as a hidden weight is 0 to every order.

    ∂²⟨e_i, out_i⟩ has no entry at hidden j. Kills window_one_too_wide.
    """
    operation = calculus.forward_over_reverse
    return worst(
        _hidden_zero(
            f"Hessian product of row {row}",
            run_on(subject, operation, given, given.tangent, _only(given.cotangent, row)),
            row,
            given,
        )
        for row in range(given.shape.T)
    )


def nonzeros(subject: Subject, given: Problem) -> Measurement:
    """Where j is open to i, out_i depends on value_j, and on key_j if the row has two keys.

    Counts the pairs (i, j, head) without such a dependence; none are allowed. Exact: a weight is
    positive.

    ∂out_i/∂v_j ≠ 0 for open j. Kills causal_strict.
    """
    missing = 0
    for row, (_, key, value) in row_gradients(subject, given):
        open_keys = given.mask[row]
        missing += int((~np.any(value[..., open_keys, :, :] != 0, axis=-1)).sum())
        if open_keys.sum() > 1:
            missing += int((~np.any(key[..., open_keys, :, :] != 0, axis=-1)).sum())
    reason = "exact: every weight is positive, so every allowed dependence exists"
    return bounded("allowed pairs without a dependence", missing, 0, reason, missing, 0)


def leak(subject: Subject, given: Problem) -> Measurement:
    """Hidden keys and values replaced by others and by 1e30 leave a row as it was, bit for bit.

    A mask of -1e9, or one applied after the softmax, leaks here and hardly anywhere else. Exact: a
    weight of 0 times a finite number is 0.

    hidden k_j, v_j := 1e30 leave out_i bitwise. Kills mask_minus_twenty.
    """
    base = run_on(subject, calculus.value, given)
    huge = 1e30 if given.dtype.itemsize > 2 else 1e4
    found = []
    for column in range(given.shape.S):
        for scale in (0.0, huge):  # 0: other numbers of the usual size
            key, value = given.key.copy(), given.value.copy()
            for array, new in zip((key, value), given.tangent[1:], strict=True):
                array[..., column, :, :] = scale if scale else new[..., column, :, :]
            changed = run_on(subject, calculus.value, with_inputs(given, key=key, value=value))
            blind = ~given.mask[:, column]
            what = f"rows that do not see key {column}"
            found.append(
                compare(what, changed[..., blind, :, :], base[..., blind, :, :], given, EXACT)
            )
    return worst(found)


def prefix_invariance(subject: Subject, given: Problem) -> Measurement:
    """Under a causal mask the first t rows are the attention of the first t tokens. 900 u.

    f(x[:t]) = f(x)[:t]. Kills reversed_causal.
    """
    full, length = run_on(subject, calculus.value, given), 8
    x = tuple(array[..., :length, :, :] for array in given.x)
    short = run(subject, calculus.value, x, mask=given.mask[:length, :length])
    return compare("first 8 rows", short, full[..., :length, :, :], given, VALUE)


def _only(array: np.ndarray, position: int) -> np.ndarray:
    """The array with everything but one position of the sequence axis put to zero."""
    kept = np.zeros_like(array)
    kept[..., position, :, :] = array[..., position, :, :]
    return kept


def _hidden_zero(what: str, gradients: Any, row: int, given: Problem) -> Measurement:
    hidden = ~given.mask[row]
    return worst(
        compare(f"{what} in hidden {name}", array[..., hidden, :, :], 0.0, given, EXACT, 1.0)
        for name, array in zip(("keys", "values"), gradients[1:], strict=True)
    )


HIDES = ("hides",)
CHECKS = (
    Check(
        zeros_in_reverse,
        "∂out_i/∂k_j = ∂out_i/∂v_j = 0 for hidden j",
        "causal_off_by_one",
        (*HIDES, "vjp"),
    ),
    Check(
        zeros_in_forward,
        "hidden k̇_j, v̇_j give out˙_i = 0",
        "causal_off_by_one",
        (*HIDES, "jvp"),
        brief=True,
    ),
    Check(
        zeros_in_hessian,
        "∂²⟨e_i, out_i⟩ has no entry at hidden j",
        "window_one_too_wide",
        (*HIDES, "second_order"),
        once=True,
    ),
    Check(nonzeros, "∂out_i/∂v_j ≠ 0 for open j", "causal_strict", ("vjp",), brief=True),
    Check(leak, "hidden k_j, v_j := 1e30 leave out_i bitwise", "mask_minus_twenty", HIDES),
    Check(
        prefix_invariance, "f(x[:t]) = f(x)[:t]", "reversed_causal", (*HIDES, "lengths"), brief=True
    ),
)
