"""Mean average precision of detections: how well a detector ranks what it finds.

Letters: B pictures, Q detections of each, G places for true boxes.
"""

import jax.numpy as jnp
import numpy as np

from experiments.boxes import overlap


def average_precision(scores: np.ndarray, right: np.ndarray, total: int) -> float:
    """The area under precision over recall, precision being the best at this recall or above.

    Args:
      scores: of all detections of a class, `[n]`.
      right: whether each found a true box that no better one had found, `[n]`.
      total: how many true boxes there are.

    Returns:
      Between 0 and 1; NaN where there is nothing to find.

    Source: Everingham et al. 2010, "The PASCAL visual object classes challenge", with all points.
    """
    if total == 0:
        return float("nan")
    hits = np.cumsum(right[np.argsort(-scores, kind="stable")])
    precision = hits / np.arange(1, len(hits) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(best * np.diff(hits, prepend=0)) / total)


def right_ones(scores: np.ndarray, iou: np.ndarray, least: float) -> np.ndarray:
    """In one picture, the best-scored detections first: who finds a true box that is still free.

    Args:
      scores: `[n]`.
      iou: of each detection with each true box of the class, `[n, g]`.
      least: IoU from which on a box is found.
    """
    free = np.ones(iou.shape[1], bool)
    right = np.zeros(len(scores), bool)
    for i in np.argsort(-scores, kind="stable"):
        if iou.shape[1] and (best := np.argmax(np.where(free, iou[i], -1.0))) is not None:
            right[i] = free[best] and iou[i, best] >= least
            free[best] &= not right[i]
    return right


def mean_average_precision(
    scores: np.ndarray,
    boxes: np.ndarray,
    true_boxes: np.ndarray,
    true_kinds: np.ndarray,
    present: np.ndarray,
    least: float = 0.5,
) -> tuple[float, list[float]]:
    """The mean over classes, and the average precision of each.

    Args:
      scores: of each class, `[B, Q, C]`: every detection is ranked in every class.
      boxes: `[B, Q, 4]`.
      true_boxes: `[B, G, 4]`.
      true_kinds: `[B, G]`.
      present: `[B, G]`, False where there is no true box.
      least: IoU from which on a box is found.
    """
    found_boxes, wanted_boxes = jnp.asarray(boxes), jnp.asarray(true_boxes)
    iou = np.asarray(overlap(found_boxes[:, :, None], wanted_boxes[:, None])[0])
    each = []
    for kind in range(scores.shape[-1]):
        wanted = present & (true_kinds == kind)
        found = zip(scores[..., kind], iou, wanted, strict=True)
        right = [right_ones(s, i[:, w], least) for s, i, w in found]
        ranked = scores[..., kind].reshape(-1)
        each.append(average_precision(ranked, np.concatenate(right), int(wanted.sum())))
    return float(np.nanmean(each)), each
