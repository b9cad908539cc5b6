"""Boxes, how much they overlap, and who belongs to whom.

A box is (x, y, width, height) of its middle and its sides, on the last axis. Letters: Q queries, G
true boxes.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment


def corners(box: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The least and the greatest (x, y), `[..., 2]` each."""
    return box[..., :2] - box[..., 2:] / 2, box[..., :2] + box[..., 2:] / 2


def overlap(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """IoU, intersection over union, and GIoU, of boxes `[..., 4]` that broadcast.

        GIoU = IoU - (hull - union) / hull,   hull: the smallest box around both

    Source: Rezatofighi et al. 2019, "Generalized intersection over union", algorithm 1.
    """
    (a_low, a_high), (b_low, b_high) = corners(a), corners(b)
    shared = jnp.maximum(jnp.minimum(a_high, b_high) - jnp.maximum(a_low, b_low), 0)
    hull = jnp.prod(jnp.maximum(a_high, b_high) - jnp.minimum(a_low, b_low), axis=-1)
    intersection = jnp.prod(shared, axis=-1)
    union = jnp.prod(a[..., 2:], axis=-1) + jnp.prod(b[..., 2:], axis=-1) - intersection
    iou = intersection / jnp.maximum(union, 1e-9)
    return iou, iou - (hull - union) / jnp.maximum(hull, 1e-9)


def match(costs: np.ndarray) -> np.ndarray:
    """The query of each true box at the least total cost: `[..., Q, G] -> [..., G]`, Q ≥ G.

    Source: Carion et al. 2020 (DETR), equation 1; Jonker and Volgenant's algorithm is scipy's.
    """
    queries, boxes = costs.shape[-2:]
    if queries < boxes:
        raise ValueError(f"costs must be [..., Q, G] with Q >= G, got shape {list(costs.shape)}")
    flat = costs.reshape(-1, queries, boxes)
    found = np.empty((len(flat), boxes), np.int32)
    for one, cost in zip(found, flat, strict=True):
        rows, columns = linear_sum_assignment(cost)
        one[columns] = rows
    return found.reshape(*costs.shape[:-2], boxes)
