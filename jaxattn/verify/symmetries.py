"""Symmetries: changes of the input after which the result is known without computing it."""

from __future__ import annotations

import numpy as np

from . import calculus
from .check import Check
from .compare import Measurement, compare, compare_all, worst
from .oracle import adjoint, softmax
from .problem import Problem, other, with_inputs
from .subject import Subject, run, run_on
from .tolerances import CONDITIONED, DERIVATIVE, EXACT, VALUE


def key_permutation(subject: Subject, given: Problem) -> Measurement:
    """Reordering keys, values and the mask's columns changes nothing. 900 u: sums reordered.

    f(q, πk, πv) = f(q, k, v). Kills no_rescale.
    """
    order = np.random.default_rng(given.seed).permutation(given.shape.S)
    x = (given.query, given.key[..., order, :, :], given.value[..., order, :, :])
    out = run(subject, calculus.value, x, mask=given.mask[:, order])
    return compare("out", out, run_on(subject, calculus.value, given), given, VALUE)


def query_permutation(subject: Subject, given: Problem) -> Measurement:
    """Reordering queries and the mask's rows reorders the rows of out. 900 u: tiles differ.

    f(πq, k, v) = π f(q, k, v). Kills stray_position_bias.
    """
    order = np.random.default_rng(given.seed).permutation(given.shape.T)
    x = (given.query[..., order, :, :], given.key, given.value)
    out = run(subject, calculus.value, x, mask=given.mask[order])
    expected = run_on(subject, calculus.value, given)[..., order, :, :]
    return compare("out", out, expected, given, VALUE)


def key_shift(subject: Subject, given: Problem) -> Measurement:
    """k + c: out is unchanged, and lse_i grows by q_i.c / √H, which alone tells 1/H from 1/√H.

    9e3 u, as k + c is rounded and scores grow.

    k + c: out unchanged, lse_i += q_i·c / √H. Kills scale_one_over_size.
    """
    shift = np.asarray(given.tangent[1][..., :1, :, :])
    moved = with_inputs(given, key=given.key + shift)
    # What was really added differs from `shift` by roundoff, part of the tolerance.
    base, out = (run_on(subject, calculus.value, each) for each in (given, moved))
    found = [compare("out", out, base, given, DERIVATIVE)]
    if "lse" in subject.features:
        (_, before), (_, after) = (
            run(subject, calculus.value, each.x, mask=each.mask, lse=True)
            for each in (given, moved)
        )
        heads = np.repeat(shift, given.shape.N // given.shape.K, axis=-2).astype(np.float64)
        grown = (given.query.astype(np.float64) * heads).sum(-1) / given.shape.H**0.5
        found.append(compare("lse", after, np.float64(before) + grown, given, DERIVATIVE))
    return worst(found)


def change_of_basis(subject: Subject, given: Problem) -> Measurement:
    """(q A, k A^-T) gives the same out for every invertible A. 9e4 u: A's condition number.

    f(qA, kA⁻ᵀ, v) = f(q, k, v). Kills normalised_keys.
    """
    size = given.shape.H
    draw = np.random.default_rng(given.seed).standard_normal((size, size))
    basis = np.eye(size) + 0.2 * draw / np.linalg.norm(draw, 2)
    query = given.query.astype(np.float64) @ basis
    key = given.key.astype(np.float64) @ np.linalg.inv(basis).T
    moved = run_on(subject, calculus.value, with_inputs(given, query=query, key=key))
    return compare("out", moved, run_on(subject, calculus.value, given), given, CONDITIONED)


def score_shift(subject: Subject, given: Problem) -> Measurement:
    """A bias b_i, equal for all keys, leaves out alone and adds b_i to lse. 900 u.

    s_ij + b_i: out unchanged, lse_i += b_i. Kills bias_after_softmax.
    """
    amount = np.random.default_rng(given.seed).standard_normal((1, given.shape.N, given.shape.T, 1))
    bias = np.broadcast_to(amount, (1, given.shape.N, given.shape.T, given.shape.S))
    x = (*given.x, bias.astype(given.dtype))
    lse = "lse" in subject.features
    result = run(subject, calculus.value, x, mask=given.mask, lse=lse, fourth="bias")
    base = run(subject, calculus.value, given.x, mask=given.mask, lse=lse)
    if not lse:
        return compare("out", result, base, given, VALUE)
    shift = np.swapaxes(x[3][..., 0].astype(np.float64), -1, -2)
    return worst(
        (
            compare("out", result[0], base[0], given, VALUE),
            compare("lse", result[1], base[1] + shift, given, VALUE),
        )
    )


def head_independence(subject: Subject, given: Problem) -> Measurement:
    """Other inputs in head 1 leave head 0 alone, bit for bit; likewise example 1 and example 0.

    head 0 does not see head 1. Kills softmax_over_heads.
    """
    base = run_on(subject, calculus.value, given)
    heads = [array.copy() for array in given.x]
    examples = [array.copy() for array in given.x]
    for head, example, array in zip(heads, examples, given.second_tangent, strict=True):
        head[..., 1, :] = array[..., 1, :]
        example[1] = array[1]
    other_head = run(subject, calculus.value, tuple(heads), mask=given.mask)
    other_example = run(subject, calculus.value, tuple(examples), mask=given.mask)
    return worst(
        (
            compare("head 0", other_head[..., 0, :], base[..., 0, :], given, EXACT),
            compare("example 0", other_example[0], base[0], given, EXACT),
        )
    )


def grouped_heads(subject: Subject, given: Problem) -> Measurement:
    """With N = 4 and K = 2, query head h reads key head h // 2: as if heads were repeated.

    Out to 900 u and gradients, summed over each group, to 9e3 u of the oracle's.

    query head h reads key head h // (N/K). Kills wrong_grouping.
    """
    grouped = other(given, N=4, K=2)
    at = softmax(grouped.x, grouped.mask)
    found = [compare("out", run_on(subject, calculus.value, grouped), at.out, given, VALUE)]
    if "vjp" in subject.features:
        got = run_on(subject, calculus.pull, grouped, grouped.cotangent)
        expected = adjoint(at, grouped.cotangent, heads=2)
        found.append(compare_all("gradient", got, expected, given, DERIVATIVE))
    return worst(found)


CHECKS = (
    Check(key_permutation, "f(q, πk, πv) = f(q, k, v)", "no_rescale", ("unordered",)),
    Check(
        query_permutation,
        "f(πq, k, v) = π f(q, k, v)",
        "stray_position_bias",
        ("unordered",),
        brief=True,
    ),
    Check(key_shift, "k + c: out unchanged, lse_i += q_i·c / √H", "scale_one_over_size"),
    Check(change_of_basis, "f(qA, kA⁻ᵀ, v) = f(q, k, v)", "normalised_keys"),
    Check(
        score_shift,
        "s_ij + b_i: out unchanged, lse_i += b_i",
        "bias_after_softmax",
        ("bias",),
        brief=True,
    ),
    Check(head_independence, "head 0 does not see head 1", "softmax_over_heads"),
    Check(
        grouped_heads,
        "query head h reads key head h // (N/K)",
        "wrong_grouping",
        ("gqa",),
        once=True,
    ),
)
