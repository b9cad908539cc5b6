"""Transformations: what jit, scan, cond, remat and shard_map make of attention.

Each operation is written as `operation(attend, x, ...)` and held against the oracle's closed forms,
to 9e3 u. Four tokens, and the widest dtype only: transformations do not depend on either.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import calculus, oracle
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .problem import Problem
from .small import small_problem
from .subject import Subject, attend_under, run, run_on
from .tolerances import DERIVATIVE, VALUE

ALL = (0, 1, 2)
PARTS = ((0,), (1,), (2,), (1, 2))


def jit_equals_eager(subject: Subject, given: Problem) -> Measurement:
    """Uncompiled, compiled as usual, and compiled with little effort: the same out and gradient.

    900 u for out, 9e3 u for gradients: XLA may reorder sums. All other checks run programs compiled
    with little effort; this one ties them to the usual ones.

    jit(f) = f. Kills another_when_compiled.
    """
    subject = replace(subject, jit=True)
    attend, x = attend_under(subject, jnp.asarray(given.mask)), tuple(map(jnp.asarray, given.x))
    out = run_on(subject, calculus.value, given)
    found = [
        compare("out, compiled or not", out, attend(*x), given, VALUE),
        compare("out, compiled as usual", jax.jit(attend)(*x), out, given, VALUE),
    ]
    if "vjp" in subject.features:
        usual = jax.jit(lambda x, e: calculus.pull(attend, x, e))(x, given.cotangent)
        got = run_on(subject, calculus.pull, given, given.cotangent)
        found.append(compare_all("gradient, compiled as usual", usual, got, given, DERIVATIVE))
    return worst(found)


def mask_as_argument(subject: Subject, given: Problem) -> Measurement:
    """The mask may be an argument of the compiled program: the same out as with a known one.

    900 u: XLA may fold a known mask into the sums.

    f under jit, mask an argument. Kills mask_must_be_known.
    """
    known, traced = (
        run_on(replace(subject, jit=True, traced_mask=traced), calculus.value, given)
        for traced in (False, True)
    )
    return compare("out", traced, known, given, VALUE)


def _remat_scan_cond(attend: Any, x: Any, stack: Any, e: Any) -> Any:
    def scanned(*stack: Any) -> Any:
        start = jnp.zeros((), stack[0].dtype)
        return jax.lax.scan(lambda c, x: (c + calculus.inner(attend(*x), e), None), start, stack)[0]

    def chosen(*x: Any) -> Any:
        return jax.lax.cond(x[0][0, 0, 0, 0] < 1e9, attend, lambda *x: x[0] * 0, *x)

    scan = jax.grad(scanned, ALL)(*stack)
    return calculus.pull(jax.checkpoint(attend), x, e), scan, calculus.pull(chosen, x, e)


def remat_scan_cond(subject: Subject, given: Problem) -> Measurement:
    """Gradients through jax.checkpoint, jax.lax.scan and jax.lax.cond equal plain ones. 9e3 u.

    ∇ through remat, scan, cond. Kills gradient_without_row_sum.
    """
    small = small_problem(given)
    stack = tuple(np.stack([a, b]) for a, b in zip(small.x, small.tangent, strict=True))

    remat, scan, cond = run_on(subject, _remat_scan_cond, small, stack, small.cotangent)
    at = [oracle.softmax([array[i] for array in stack], small.mask) for i in (0, 1)]
    each = [oracle.adjoint(a, small.cotangent) for a in at]
    return worst(
        (
            compare_all("checkpoint", remat, each[0], small, DERIVATIVE),
            compare_all(
                "scan", scan, [np.stack(p) for p in zip(*each, strict=True)], small, DERIVATIVE
            ),
            compare_all("cond", cond, each[0], small, DERIVATIVE),
        )
    )


def _partial_arguments(attend: Any, x: Any, e: Any) -> Any:
    return [jax.grad(lambda *x: calculus.inner(attend(*x), e), subset)(*x) for subset in PARTS]


def partial_arguments(subject: Subject, given: Problem) -> Measurement:
    """The gradient in one or two arguments alone, others constant, is that part of the whole.

    9e3 u: cancelling sums.

    ∂f/∂q, ∂f/∂k, ∂f/∂v alone. Kills key_gradient_without_scale.
    """
    small = small_problem(given)

    results = run_on(subject, _partial_arguments, small, small.cotangent)
    whole = oracle.adjoint(oracle.softmax(small.x, small.mask), small.cotangent)
    return worst(
        compare_all(
            f"gradient in arguments {subset} alone",
            got,
            [whole[i] for i in subset],
            small,
            DERIVATIVE,
        )
        for subset, got in zip(PARTS, results, strict=True)
    )


def _shard_map_over_batch(attend: Any, x: Any, e: Any) -> Any:
    count = 2 if jax.device_count() > 1 else 1
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("batch",))
    spec = jax.sharding.PartitionSpec("batch")
    each = jax.shard_map(attend, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)
    return each(*x), calculus.pull(each, x, e)


def shard_map_over_batch(subject: Subject, given: Problem) -> Measurement:
    """Out and gradient inside jax.shard_map, the batch axis split over the devices there are.

    Out to 900 u, gradient to 9e3 u: devices sum alone.

    shard_map(f) = f. Kills carry_does_not_vary.
    """

    out, gradients = run(subject, _shard_map_over_batch, given.x, given.cotangent, mask=given.mask)
    at = oracle.softmax(given.x, given.mask)
    return worst(
        (
            compare("out", out, at.out, given, VALUE),
            compare_all(
                "gradient", gradients, oracle.adjoint(at, given.cotangent), given, DERIVATIVE
            ),
        )
    )


CHECKS = (
    Check(
        jit_equals_eager, "jit(f) = f", "another_when_compiled", ("jit",), once=True, quick=False
    ),
    Check(
        mask_as_argument,
        "f under jit, mask an argument",
        "mask_must_be_known",
        ("jit", "mask", "traced_mask"),
        once=True,
    ),
    Check(
        remat_scan_cond,
        "∇ through remat, scan, cond",
        "gradient_without_row_sum",
        ("vjp",),
        once=True,
        quick=False,
    ),
    Check(
        partial_arguments,
        "∂f/∂q, ∂f/∂k, ∂f/∂v alone",
        "key_gradient_without_scale",
        ("vjp",),
        once=True,
        quick=False,
    ),
    Check(
        shard_map_over_batch,
        "shard_map(f) = f",
        "carry_does_not_vary",
        ("shard_map", "vjp"),
        once=True,
        quick=False,
    ),
)
