"""Empty rows: a query that may attend to nothing gets 0, lse -inf, and derivatives of 0.

Not a mean over the padding, not NaN, and nothing that flows back through it.
"""

from __future__ import annotations

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .problem import EMPTY_ROWS, Problem, with_empty_rows
from .subject import Subject, run, run_on
from .tolerances import EXACT


def empty_rows(subject: Subject, given: Problem) -> Measurement:
    """A query that may attend to nothing: out 0, every derivative 0 and finite, exactly.

    The other rows are as the oracle has them elsewhere; here: cotangents and tangents of empty rows
    reach nothing.

    an empty row has out = 0 and derivatives 0. Kills mean_on_empty_rows.
    """
    given = with_empty_rows(given)
    out = run_on(subject, calculus.value, given)
    found = [compare("out of empty rows", out[..., EMPTY_ROWS, :, :], 0.0, given, EXACT, 1.0)]
    if "vjp" in subject.features:
        full = run_on(subject, calculus.pull, given, given.cotangent)
        silent = np.array(given.cotangent)
        silent[..., EMPTY_ROWS, :, :] = 0
        without = run_on(subject, calculus.pull, given, silent)
        found.append(compare_all("gradient through empty rows", full, without, given, EXACT))
        query = full[0][..., EMPTY_ROWS, :, :]
        found.append(compare("query gradient of empty rows", query, 0.0, given, EXACT, 1.0))
    if "jvp" in subject.features:
        moved = run_on(subject, calculus.push, given, given.tangent)[..., EMPTY_ROWS, :, :]
        found.append(compare("tangent of empty rows", moved, 0.0, given, EXACT, 1.0))
    return worst(found)


def no_keys(subject: Subject, given: Problem) -> Measurement:
    """Without any keys, S = 0, every row is empty: out is 0, of the right shape.

    Exact: an empty sum.

    S = 0 gives out = 0. Kills nan_on_empty_rows.
    """
    nothing = (given.query, given.key[..., :0, :, :], given.value[..., :0, :, :])
    out = run(subject, calculus.value, nothing, mask=given.mask[:, :0])
    return compare("out without keys", out, 0.0, given, EXACT, 1.0)


def empty_rows_second_order(subject: Subject, given: Problem) -> Measurement:
    """Hessian products with empty rows are finite, and exactly 0 at their queries.

    ∂²⟨e_i, out_i⟩ = 0 for an empty row. Kills nan_gradient_on_empty_rows.
    """
    given = with_empty_rows(given)
    operation = calculus.forward_over_reverse
    full = run_on(subject, operation, given, given.tangent, given.cotangent)
    silent = np.array(given.cotangent)
    silent[..., EMPTY_ROWS, :, :] = 0
    without = run_on(subject, operation, given, given.tangent, silent)
    query = full[0][..., EMPTY_ROWS, :, :]
    return worst(
        (
            compare_all("Hessian product through empty rows", full, without, given, EXACT),
            compare("Hessian product at empty queries", query, 0.0, given, EXACT, 1.0),
        )
    )


def empty_rows_lse(subject: Subject, given: Problem) -> Measurement:
    """lse of an empty row is -inf, and a cotangent of it reaches nothing and is no NaN.

    Exact: no arithmetic is called for.

    an empty row has lse = -∞. Kills finite_lse_on_empty_rows.
    """
    given = with_empty_rows(given)
    mask = given.mask
    _, lse = run(subject, calculus.value, given.x, mask=mask, lse=True)
    found = [compare("lse", lse[..., EMPTY_ROWS, :], -np.inf, given, EXACT)]
    if "vjp" in subject.features:
        silent = np.array(given.lse_cotangent)
        silent[..., EMPTY_ROWS, :] = 0
        full, without = (
            run(subject, calculus.pull, given.x, (given.cotangent * 0, each), mask=mask, lse=True)
            for each in (given.lse_cotangent, silent)
        )
        found.append(compare_all("gradient of lse of empty rows", full, without, given, EXACT))
    return worst(found)


FAULT = "does not give an empty row out 0, lse -∞ and derivatives 0"
CHECKS = (
    Check(
        no_keys,
        "S = 0 gives out = 0",
        "nan_on_empty_rows",
        ("empty_rows", "cross"),
        brief=True,
        fault=FAULT,
    ),
    Check(
        empty_rows,
        "an empty row has out = 0 and derivatives 0",
        "mean_on_empty_rows",
        ("empty_rows",),
        fault=FAULT,
    ),
    Check(
        empty_rows_second_order,
        "∂²⟨e_i, out_i⟩ = 0 for an empty row",
        "nan_gradient_on_empty_rows",
        ("empty_rows", "second_order"),
        brief=True,
        fault=FAULT,
    ),
    Check(
        empty_rows_lse,
        "an empty row has lse = -∞",
        "finite_lse_on_empty_rows",
        ("empty_rows", "lse"),
        brief=True,
        fault=FAULT,
    ),
)
