"""Which keys a step needs, where they are known and few: so sparse masks cost what they see.

A step that is handed all keys of its head costs S, however few it visits, and T/t steps cost T².
Letters: see `jaxattn._typing`; t is the size of a block of queries.
"""

from typing import NamedTuple

import numpy as np

from jaxattn.tiles import Visits


class Spans(NamedTuple):
    """All keys of a step: the blocks `far`, the same for all, and `near` blocks from `first`.

    `first` is `[E, query blocks, 1]`, and `place` `[E, query blocks, visits]` says at which of
    these blocks, in this order, each visit finds its own.
    """

    far: np.ndarray
    near: int
    first: np.ndarray
    place: np.ndarray


def spans(found: Visits) -> Spans | None:
    """The keys that serve all visits of each step, if they are at most half of all."""
    if found.listed is None or not found.listed.any():
        return None
    often = np.bincount(found.block[found.listed], minlength=found.count)
    popular = np.flatnonzero(2 * often > found.listed[..., 0].size)
    both = [around(found, far) for far in (popular[:0], popular)]
    best = min(both, key=lambda part: len(part.far) + part.near)
    return best if 2 * (len(best.far) + best.near) <= found.count else None


def around(found: Visits, far: np.ndarray) -> Spans:
    """The fewest neighbours that serve what `far` does not."""
    assert found.listed is not None
    block, count = found.block, found.count
    away = np.isin(block, far)
    rest = found.listed & ~away
    first = np.where(rest, block, count).min(axis=-1, keepdims=True)
    near = int(np.where(rest, block + 1 - first, 1).max())
    first = np.minimum(first, count - near)
    place = np.where(away, np.searchsorted(far, block), len(far) + block - first)
    place = np.where(found.listed, place, 0)  # nobody looks at a visit to an empty tile
    return Spans(far, near, first.astype(np.int32), place.astype(np.int32))


def alike(found: Visits) -> list[np.ndarray | None]:
    """Query blocks that visit few tiles, and the others, where that halves the visits at least."""
    if found.listed is None:
        return [None]
    needed = found.listed.sum(axis=-1).max(axis=0)
    few, most = np.unique(needed), needed.max(initial=0)
    cost = [(needed <= n).sum() * n + (needed > n).sum() * most for n in few]
    if not most or 2 * min(cost) > len(needed) * most:
        return [None]
    short = needed <= few[int(np.argmin(cost))]
    return [np.flatnonzero(short), np.flatnonzero(~short)]


def only(found: Visits, rows: np.ndarray) -> Visits:
    """The visits of these query blocks."""
    assert found.listed is not None
    listed = found.listed[:, rows]
    most = int(listed.sum(axis=-1).max(initial=0))
    block, kind = found.block[:, rows, :most], found.kind[:, rows, :most]
    kinds = tuple(int(k) for k in np.unique(kind)) if isinstance(kind, np.ndarray) else found.kinds
    return Visits(block, kind, kinds, found.count, listed[..., :most])
