"""Attention in float64 NumPy, one pair at a time, from the text of the contract alone.

Order of operations on a score: scale, softcap, score_mod, bias, mask, sink, softmax, dropout.
Nothing here is shared with the library. Letters: see `jaxattn._typing`.
"""

from typing import NamedTuple

import numpy as np


class Answer(NamedTuple):
    """out `[*B, T, N, Hv]`, lse `[*B, T, N]` (sink included), weights `[*B, N, T, S]`."""

    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray


def attention(
    query,
    key,
    value,
    *,
    mask=None,
    bias=None,
    scale=None,
    softcap=None,
    score_mod=None,
    sink=None,
    kept=None,
    dropout_rate=0.0,
    query_positions=None,
    key_positions=None,
):
    """The primitive. `mask` and `bias` are arrays or functions of two positions (integers).

    `score_mod(score, i, j)` sees single numbers, `kept [*B, N, T, S]` says which weights dropout
    leaves.
    """
    query, key, value = (np.asarray(x).astype(np.float64) for x in (query, key, value))
    *batch, queries, heads, size = query.shape
    keys, key_heads = key.shape[-3:-1]
    shape = (*batch, heads, queries, keys)
    rows = positions(query_positions, batch, queries)
    columns = positions(key_positions, batch, keys)
    mask = of_pairs(True if mask is None else mask, rows, columns, shape, key_heads)
    bias = of_pairs(0.0 if bias is None else bias, rows, columns, shape, key_heads)
    default = 1 / np.sqrt(size) if size else 1.0
    scale = np.broadcast_to(default if scale is None else np.asarray(scale, np.float64), heads)
    softcap = None if softcap is None else np.broadcast_to(np.asarray(softcap, np.float64), heads)
    sink = np.broadcast_to(-np.inf if sink is None else np.asarray(sink, np.float64), heads)

    out = np.zeros((*batch, queries, heads, value.shape[-1]))
    lse = np.zeros((*batch, queries, heads))
    weights = np.zeros(shape)
    for *b, h, i in np.ndindex(*shape[:-1]):
        b, g = tuple(b), h // (heads // key_heads)
        scores = np.full(keys, -np.inf)
        for j in range(keys):
            p, r, pair = rows[b][i], columns[b][j], (*b, h, i, j)
            if p < 0 or r < 0 or not mask[pair] or bias[pair] == -np.inf:
                continue
            score = scale[h] * (query[b][i, h] @ key[b][j, g])
            score = score if softcap is None else softcap[h] * np.tanh(score / softcap[h])
            score = score if score_mod is None else score_mod(score, p, r)
            scores[j] = score + bias[pair]
        row, lse[(*b, i, h)] = softmax(scores, sink[h])
        if kept is not None:
            row = np.where(kept[(*b, h, i)], row / (1 - dropout_rate), 0)
        weights[(*b, h, i)] = row
        used = row != 0
        out[(*b, i, h)] = row[used] @ value[b][used, g]
    return Answer(out, lse, weights)


def softmax(scores, sink):
    """Weights of one row and its logsumexp; a row of nothing is 0 and -inf."""
    peak = max(scores.max(initial=-np.inf), sink)
    if peak == -np.inf:
        return np.zeros_like(scores), -np.inf
    total = np.sum(np.exp(scores - peak)) + np.exp(sink - peak)
    return np.exp(scores - peak) / total, peak + np.log(total)


def kept(words, rate, shape, query_positions=None, key_positions=None, batch_index=True):
    """Which weights `[*B, N, T, S]` dropout keeps, by the hash as documented, in Python integers.

    `words [*B, 2]` or `[2]`; without `batch_index` every example counts as index 0.
    """
    *batch, _, queries, keys = shape
    rows, columns = (
        positions(query_positions, batch, queries),
        positions(key_positions, batch, keys),
    )
    words = np.broadcast_to(np.asarray(words), (*batch, 2))
    answer = np.zeros(shape, bool)
    for *b, h, i, j in np.ndindex(*shape):
        b = tuple(b)
        first, second = (int(word) for word in words[b])
        index = int(np.ravel_multi_index(b, batch)) if batch and batch_index else 0
        row = mix(mix(mix(first ^ index) ^ h) ^ (int(rows[b][i]) % 2**32))
        bits = mix(mix(row ^ (int(columns[b][j]) % 2**32)) ^ mix(row ^ second))
        answer[(*b, h, i, j)] = bits >= rate * 2**32
    return answer


def mix(x):
    """MurmurHash3's fmix32."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B % 2**32
    x = (x ^ (x >> 13)) * 0xC2B2AE35 % 2**32
    return x ^ (x >> 16)


def positions(given, batch, size):
    """Positions `[*B, size]`, given or counted."""
    given = np.arange(size) if given is None else np.asarray(given)
    return np.broadcast_to(given, (*batch, size))


def of_pairs(x, rows, columns, shape, key_heads):
    """A mask or bias as `[*B, N, T, S]`, from an array or a function of two positions."""
    if callable(x):
        return np.array(
            [x(int(rows[tuple(b)][i]), int(columns[tuple(b)][j])) for *b, _, i, j in indices(shape)]
        ).reshape(shape)
    x = np.asarray(x)
    if x.ndim == len(shape) and x.shape[-3] == key_heads != shape[-3]:
        x = np.repeat(x, shape[-3] // key_heads, axis=-3)
    return np.broadcast_to(x if x.dtype == bool else x.astype(np.float64), shape)


def indices(shape):
    """All indices into an array of this shape."""
    return np.ndindex(*shape)
