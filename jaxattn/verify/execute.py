"""Run one check on one function, whatever the function does: raise, print, warn, return NaN."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax
import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement
from .problem import UNIT_ROUNDOFF, Problem, problem
from .reproduce import reproduction
from .subject import Subject, run_on
from .values import oracle

INSIDE = {2.0**-24: "float32", 2.0**-11: "float16 or TF32", 2.0**-8: "bfloat16"}
NUMBERS = "computes in {inner} inside, whatever it is given"
NANS = "returns NaN on ordinary input"


@dataclass(frozen=True)
class Result:
    """What one check said about one function in one dtype.

    status: "pass", "fail" or "unsupported". cause: what several failures may have in common.
    noise: what the function printed or warned of meanwhile.
    """

    check: str
    family: str
    formula: str
    dtype: str
    status: str
    message: str = ""
    error: float | None = None
    tolerance: float | None = None
    cause: str = ""
    noise: str = ""
    seconds: float = 0.0


@contextlib.contextmanager
def settings(dtype: str) -> Iterator[None]:
    """64-bit numbers just for float64, and full precision in products on every platform."""
    with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
        yield


def prepare(subject: Subject, dtype: str, seed: int) -> tuple[Subject, Problem]:
    """The subject in the fastest way of calling it that works here, and its base problem.

    Compiled with the mask as an argument, or with the mask known beforehand, or not compiled.
    Where a claimed way fails, the checks of that claim say so, and the others still run.
    """
    given = problem(seed, dtype, masking=subject.masking)
    ways = ((True, True), (True, False), (False, False))
    claims = ("jit" in subject.features, "traced_mask" in subject.features)
    usable = [
        way
        for way in ways
        if way[0] <= claims[0] and way[1] <= (claims[1] or subject.masking != "argument")
    ]
    for jit, traced in usable:
        trial = replace(subject, jit=jit, traced_mask=traced)
        with settings(dtype), _quiet(), contextlib.suppress(Exception, SystemExit):
            run_on(trial, calculus.value, given)
            return trial, given
    return replace(subject, jit=usable[0][0], traced_mask=usable[0][1]), given


def execute(check: Check, subject: Subject, given: Problem) -> Result:
    """Measure, and say pass, fail or unsupported; never raises but for a keyboard interrupt."""
    dtype = given.dtype.name
    row = Result(check.name, check.family, check.formula, dtype, "unsupported")
    lacking = [need for need in (dtype, *check.needs) if need not in subject.features]
    if lacking:
        return replace(row, message="not claimed: " + ", ".join(lacking))
    start, cause = time.perf_counter(), ""
    measured, error = None, ""
    with settings(dtype), _quiet() as noise:
        try:
            measured = check.run(subject, given)
            cause = "" if measured.passed else _cause(check, subject, given)
        except (Exception, SystemExit) as exception:
            error = cause = _describe(exception)
    return replace(
        row,
        status="pass" if measured is not None and measured.passed else "fail",
        message=_message(check, subject, given, measured, error),
        error=None if measured is None else measured.error,
        tolerance=None if measured is None else measured.tolerance,
        cause=cause,
        noise=_shorten(noise()),
        seconds=time.perf_counter() - start,
    )


def inner_unit(subject: Subject, given: Problem) -> float | None:
    """The unit roundoff that a function really computes with, if it is wider than its dtype's.

    The narrowest of float32, float16 and bfloat16 that explains its distance from the oracle.
    """
    if oracle(subject, given).passed:
        return None
    wider = [unit for unit in INSIDE if unit > UNIT_ROUNDOFF[given.dtype.name]]
    return next((u for u in wider if oracle(subject, replace(given, unit=u)).passed), None)


def _cause(check: Check, subject: Subject, given: Problem) -> str:
    """What a failure has in common with others: NaN everywhere, low precision inside, a fault."""
    if not np.all(np.isfinite(np.asarray(run_on(subject, calculus.value, given), np.float64))):
        return NANS
    unit = inner_unit(subject, given)
    if unit is not None and check.run(subject, replace(given, unit=unit)).passed:
        return NUMBERS.format(inner=INSIDE[unit])
    return check.fault or f"breaks {check.name}, {check.formula}"


def _message(
    check: Check, subject: Subject, given: Problem, found: Measurement | None, error: str
) -> str:
    if found is not None and found.passed:
        return ""
    lines = [f"{check.name} [{given.dtype.name}]: {check.formula}"]
    if found is None:
        lines.append(f"  raised {error}")
    else:
        lines.append(
            f"  {found.what}: got {found.got:.9g}, expected {found.expected:.9g}, at {found.where}"
        )
        lines.append(f"  error {found.error:.3g}, allowed {found.tolerance:.3g} ({found.reason})")
    lines += ["  to reproduce:", *("    " + line for line in reproduction(check, subject, given))]
    return "\n".join(lines)


@contextlib.contextmanager
def _quiet():  # noqa: ANN202 - a context manager of () -> str
    """Collect what is printed and warned of; yields a function that returns it."""
    text = io.StringIO()
    with (
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(text),
        warnings.catch_warnings(record=True) as caught,
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("always")
        yield lambda: text.getvalue() + "".join(f"warning: {w.message}\n" for w in caught)


def _describe(exception: BaseException) -> str:
    lines = str(exception).strip().splitlines()
    return f"{type(exception).__name__}: {_shorten(lines[0]) if lines else 'no text'}"


def _shorten(text: str, limit: int = 300) -> str:
    text = text.strip()
    return text if len(text) <= limit else text[:limit] + " ..."
