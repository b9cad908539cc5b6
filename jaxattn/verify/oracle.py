"""Attention and its derivatives in float64 NumPy, from the formulas: nothing here is autodiff.

For one head, with s = scale q k + bias, L = log sum_j exp(s_j), P = exp(s - L), o = P v:

    tangent   ds = scale (dq k + q dk);  dL = sum P ds;  do = sum P (ds v + dv) - dL o
    adjoint   D = e.o, w = l - D;  S = P (e.v + w);  dv = P e, dq = scale S k, dk = scale S q
    hessian   of <e, o> + <l, L> along (dq, dk, dv):  dD = e.do,
              dS = S (ds - dL) + P (e.dv - dD)
    mixed     second derivative of o along two directions

A row with nothing to attend to has o = 0, L = -inf and no derivative. Every function takes query
`[*B, T, N, H]`, key `[*B, S, K, H]`, value `[*B, S, K, Hv]`, a boolean `[T, S]` mask, and an
optional bias `[N, T, S]` and scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


class Softmax(NamedTuple):
    """The intermediate results that all derivatives share; weights are [*B, N, T, S]."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scale: float
    weights: np.ndarray
    out: np.ndarray
    lse: np.ndarray


def softmax(x: Any, mask: Any, bias: Any = None, scale: float | None = None) -> Softmax:
    """Weights, out `[*B, T, N, Hv]` and lse `[*B, T, N]`, all in float64."""
    query, key, value = expand(x)
    size = query.shape[-1]
    factor = float(scale) if scale is not None else (size**-0.5 if size else 1.0)
    scores = factor * pair(query, key) + (0.0 if bias is None else np.asarray(bias, np.float64))
    allowed = np.broadcast_to(np.asarray(mask, bool), scores.shape)
    scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        lse = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
    weights = np.where(allowed, np.exp(scores - np.where(np.isfinite(lse), lse, 0.0)), 0.0)
    out = along_keys(weights, value)
    return Softmax(query, key, value, factor, weights, out, np.swapaxes(lse[..., 0], -1, -2))


def expand(x: Any) -> Triple:
    """Float64 copies, with each key head repeated for the query heads that read it."""
    query, key, value = (np.asarray(array).astype(np.float64) for array in x)
    group = query.shape[-2] // key.shape[-2]
    return query, np.repeat(key, group, axis=-2), np.repeat(value, group, axis=-2)


def pair(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[*B, T, N, H], [*B, S, N, H] -> [*B, N, T, S]: all inner products of rows and keys."""
    return np.einsum("...tnh,...snh->...nts", left, right)


def along_keys(weights: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Sum over keys: [*B, N, T, S], [*B, S, N, H] -> [*B, T, N, H]."""
    return np.einsum("...nts,...snh->...tnh", weights, keys)


def along_queries(weights: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Sum over queries: [*B, N, T, S], [*B, T, N, H] -> [*B, S, N, H]."""
    return np.einsum("...nts,...tnh->...snh", weights, queries)


def rows(per_row: np.ndarray) -> np.ndarray:
    """[*B, T, N] -> [*B, N, T, 1], to stand beside weights."""
    return np.swapaxes(per_row, -1, -2)[..., None]


def tangent(at: Softmax, dx: Any) -> tuple[np.ndarray, np.ndarray]:
    """(d out, d lse) along dx: the formula T."""
    ds, dvalue = _score_tangent(at, dx), expand(dx)[2]
    dlse = (at.weights * ds).sum(-1)
    dout = along_keys(at.weights * ds, at.value) + along_keys(at.weights, dvalue)
    dlse = np.swapaxes(dlse, -1, -2)
    return dout - dlse[..., None] * at.out, dlse


def adjoint(
    at: Softmax, cotangent: Any, lse_cotangent: Any = 0.0, heads: int | None = None
) -> Triple:
    """Gradients of <e, out> + <l, lse>: the formula B, summed over each group of heads."""
    e = np.asarray(cotangent).astype(np.float64)
    score = _score_cotangent(at, e, lse_cotangent)
    return (
        at.scale * along_keys(score, at.key),
        _group_sum(at.scale * along_queries(score, at.query), heads),
        _group_sum(along_queries(at.weights, e), heads),
    )


def hessian(
    at: Softmax, dx: Any, cotangent: Any, lse_cotangent: Any = 0.0, heads: int | None = None
) -> Triple:
    """Hessian of <e, out> + <l, lse> times dx: the formula H, with cotangents held fixed."""
    dquery, dkey, dvalue = expand(dx)
    e = np.asarray(cotangent).astype(np.float64)
    score, ds = _score_cotangent(at, e, lse_cotangent), _score_tangent(at, dx)
    dout, dlse = tangent(at, dx)
    spread = ds - rows(dlse)
    dscore = score * spread + at.weights * (pair(e, dvalue) - rows((e * dout).sum(-1)))
    query = along_keys(dscore, at.key) + along_keys(score, dkey)
    key = along_queries(dscore, at.query) + along_queries(score, dquery)
    return (
        at.scale * query,
        _group_sum(at.scale * key, heads),
        _group_sum(along_queries(at.weights * spread, e), heads),
    )


def mixed(at: Softmax, dx: Any, ddx: Any) -> np.ndarray:
    """Second derivative of out along dx and ddx: the formula J2."""
    first, second = expand(dx), expand(ddx)
    ds, dds = _score_tangent(at, dx), _score_tangent(at, ddx)
    (dout, dlse), (ddout, ddlse) = tangent(at, dx), tangent(at, ddx)
    curve = at.scale * (pair(first[0], second[1]) + pair(second[0], first[1])) + ds * dds
    lse = np.swapaxes((at.weights * curve).sum(-1), -1, -2)
    total = along_keys(at.weights * curve, at.value)
    total += along_keys(at.weights * ds, second[2]) + along_keys(at.weights * dds, first[2])
    return total - dlse[..., None] * ddout - ddlse[..., None] * dout - lse[..., None] * at.out


def _score_tangent(at: Softmax, dx: Any) -> np.ndarray:
    dquery, dkey, _ = expand(dx)
    return at.scale * (pair(dquery, at.key) + pair(at.query, dkey))


def _score_cotangent(at: Softmax, e: np.ndarray, lse_cotangent: Any) -> np.ndarray:
    shift = np.asarray(lse_cotangent, np.float64) - (e * at.out).sum(-1)
    return at.weights * (pair(e, at.value) + rows(shift))


def _group_sum(per_head: np.ndarray, heads: int | None) -> np.ndarray:
    if heads is None or heads == per_head.shape[-2]:
        return per_head
    split = per_head.shape[:-2] + (heads, per_head.shape[-2] // heads, per_head.shape[-1])
    return per_head.reshape(split).sum(-2)
