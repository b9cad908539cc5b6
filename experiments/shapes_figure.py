"""The figure of `object_queries_find_shapes.py`."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments import figures
from experiments.detector import NOTHING, Found
from experiments.shapes import KINDS, SIDE, Scenes

COLOURS = (figures.BLUE, figures.VERMILION, figures.GREEN)
SHOWN, SURE = 8, 0.5


def draw(out: Path, test: Scenes, found: Found) -> Path:
    """Some scenes with all boxes of which the detector is surer than one half."""
    made = Figure(figsize=(11, 6), layout="constrained", dpi=150)
    scores = np.asarray(jax.nn.softmax(found.logits[-1], axis=-1))
    for number, ax in enumerate(made.subplots(2, SHOWN // 2).flat):
        ax.imshow(np.clip(np.asarray(test.picture[number]), 0, 1))
        ax.set_axis_off()
        for truth, present in zip(test.boxes[number], test.present[number], strict=True):
            if present:
                outline(ax, np.asarray(truth), "black", ":")
        for score, box in zip(scores[number], np.asarray(found.boxes[-1, number]), strict=True):
            kind = int(np.argmax(score[:NOTHING]))
            if score[kind] > SURE:
                label = f"{KINDS[kind]} {score[kind]:.2f}"
                outline(ax, box, COLOURS[kind], "-", label)
    made.suptitle("Scenes never seen: true boxes dotted, found ones with class and probability")
    return figures.save(made, out, "shapes")


def outline(ax: Axes, box: np.ndarray, colour: str, line: str, label: str = "") -> None:
    """A box in the picture's pixels, with its label above it."""
    x, y, width, height = SIDE * box
    left, top = x - width / 2 - 0.5, y - height / 2 - 0.5
    style: dict[str, Any] = dict(edgecolor=colour, linestyle=line, facecolor="none", linewidth=1.6)
    ax.add_patch(Rectangle((left, top), width, height, **style))
    if label:
        ax.text(left, top - 0.4, label, fontsize=7, color="white", backgroundcolor=colour,
                bbox=dict(facecolor=colour, edgecolor="none", pad=0.8))  # fmt: skip
