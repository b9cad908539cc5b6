"""Systems: the same twice, the same in pieces, and memory that grows with T and not with T²."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, bounded, compare, compare_all, worst
from .compiling import compiled
from .dense import dense_attention
from .problem import Problem, with_inputs
from .subject import Subject, attend_under, run, run_on
from .tolerances import EXACT, VALUE

SHORT, LONG = 2048, 8192


def determinism(subject: Subject, given: Problem) -> Measurement:
    """The same call twice, with another in between, gives the same bits: out and gradient.

    f twice is bitwise f. Kills another_every_call.
    """
    first = run_on(subject, calculus.value, given)
    between = with_inputs(given, query=given.tangent[0], key=given.tangent[1])
    run_on(subject, calculus.value, between)
    found = [compare("out", run_on(subject, calculus.value, given), first, given, EXACT)]
    if "vjp" in subject.features:
        one, two = (run_on(subject, calculus.pull, given, given.cotangent) for _ in range(2))
        found.append(compare_all("gradient", one, two, given, EXACT))
    return worst(found)


def cache_row(subject: Subject, given: Problem) -> Measurement:
    """One query at a time against all keys, as when decoding, gives the rows of the whole. 900 u.

    The keys that the row may not see stand for cache slots not yet written.

    f(q_i, k, v) = f(q, k, v)_i. Kills stale_cache_slot.
    """
    full = run_on(subject, calculus.value, given)
    found = []
    for row in range(given.shape.T):
        x = (given.query[..., row : row + 1, :, :], given.key, given.value)
        out = run(subject, calculus.value, x, mask=given.mask[row : row + 1])
        expected = full[..., row : row + 1, :, :]
        found.append(compare(f"row {row} alone", out, expected, given, VALUE))
    return worst(found)


def memory_growth(subject: Subject, given: Problem) -> Measurement:
    """Temporary memory at T = 8192 is at most 4.5 times that at 2048, in every derivative.

    Linear is 4, quadratic 16. Read off the compiled program, which is not run; a dense control must
    fail the same test, so that a compiler that reports nothing cannot pass it.

    temp(8192) ≤ 4.5 temp(2048). Kills claims_linear_memory.
    """
    found = [_growth("forward, dense control", dense_attention, _operations(subject)[0][1], given)]
    control = found[0]
    if control.passed:
        return bounded(
            "growth of the dense control", 1, 0, "the control must fail", control.got, 16
        )
    attend = attend_under(subject, None)
    if "mask" in subject.features:
        attend = _without_mask(subject)
    found = []
    for name, operation in _operations(subject):
        found.append(_growth(name, attend, operation, given))
        if not found[-1].passed:  # compiling is slow, and one is enough
            break
    return worst(found)


def _operations(subject: Subject) -> list[tuple[str, Callable[..., Any]]]:
    """(name, attend, x -> arrays) for everything claimed; x serves as its own direction."""
    table: list[tuple[str, tuple[str, ...], Callable[..., Any]]] = [
        ("forward", (), lambda f, x: f(*x)),
        ("jvp", ("jvp",), lambda f, x: calculus.push(f, x, x)),
        ("gradient", ("vjp",), lambda f, x: calculus.pull(f, x, x[0])),
        (
            "jvp of gradient",
            ("second_order",),
            lambda f, x: calculus.forward_over_reverse(f, x, x, x[0]),
        ),
        (
            "gradient of jvp",
            ("second_order", "jvp"),
            lambda f, x: calculus.reverse_over_forward(f, x, x, x[0]),
        ),
        (
            "gradient of gradient",
            ("second_order",),
            lambda f, x: calculus.reverse_over_reverse(f, x, x, x[0]),
        ),
        (
            "jvp of jvp",
            ("second_order", "jvp"),
            lambda f, x: calculus.forward_over_forward(f, x, x, x),
        ),
    ]
    return [(name, op) for name, needs, op in table if set(needs) <= subject.features]


def _without_mask(subject: Subject) -> Callable[..., Any]:
    return lambda query, key, value: subject.function(query, key, value, mask=None)


def _growth(
    name: str, attend: Callable[..., Any], operation: Callable[..., Any], given: Problem
) -> Measurement:
    """Measured on a program compiled with little effort and, where that fails, as usual."""
    found = []
    for compiler in (compiled, jax.jit):
        program = compiler(lambda *x: operation(attend, x))
        short, long = _temporary(program, given)
        growth = long / short if short else 1.0
        what = f"temporary memory of {name}: {short:.3g} B, then {long:.3g} B"
        reason = "4.5: linear growth is 4, quadratic 16"
        found.append(bounded(what, growth, 4.5, reason, growth, 4.0))
        if found[-1].passed:
            break
    return found[-1]


def _temporary(program: Any, given: Problem) -> list[float]:
    """Bytes of temporary memory at both lengths, for one head of size 64; compiled side by side."""
    arrays = [jax.ShapeDtypeStruct((1, length, 1, 64), given.dtype) for length in (SHORT, LONG)]
    lowered = [program.lower(array, array, array) for array in arrays]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        compilations = pool.map(lambda each: each.compile(), lowered)
    found = (each.memory_analysis() for each in compilations)
    return [float(each.temp_size_in_bytes) if each is not None else np.nan for each in found]


CHECKS = (
    Check(determinism, "f twice is bitwise f", "another_every_call"),
    Check(cache_row, "f(q_i, k, v) = f(q, k, v)_i", "stale_cache_slot", ("cross",), brief=True),
    Check(
        memory_growth,
        "temp(8192) ≤ 4.5 temp(2048)",
        "claims_linear_memory",
        ("linear_memory",),
        once=True,
        quick=False,
    ),
)
