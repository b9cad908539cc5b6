"""The figure of `vision_transformer_reads_digits.py`."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import figures

COLOURS = (figures.BLUE, figures.ORANGE, figures.GREEN)


def draw(
    out: Path, accuracy: dict[str, list[float]], pictures: np.ndarray, weights: np.ndarray
) -> Path:
    """Left, each digit with where the class token looks; right, the accuracy of each seed.

    Args:
      out: folder.
      accuracy: of each model, a number for each seed.
      pictures: `[10, 8, 8]`.
      weights: of the class token in the last block, mean over heads, `[10, 4, 4]`.
    """
    made = Figure(figsize=(11, 4.2), layout="constrained", dpi=150)
    parts: Any = made.subfigures(1, 2, width_ratios=(1.5, 1))
    left, right = parts
    axes = left.subplots(4, 5)
    for number, (picture, weight) in enumerate(zip(pictures, weights, strict=True)):
        above = 2 * (number // 5)
        axes[above, number % 5].imshow(picture, cmap="gray_r")
        axes[above + 1, number % 5].imshow(weight, cmap="viridis", vmin=0, vmax=weights.max())
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    left.suptitle("Digits never seen, and the class token's weights over 4 × 4 patches", size=10)
    bars(right.subplots(), accuracy)
    return figures.save(made, out, "digits")


def bars(ax: Axes, accuracy: dict[str, list[float]]) -> None:
    """The mean as a bar, each seed as a dot."""
    figures.tidy(ax)
    low = min(90.0, min(min(v) for v in accuracy.values()) - 1)
    for place, (values, colour) in enumerate(zip(accuracy.values(), COLOURS, strict=True)):
        mean = float(np.mean(values))
        ax.bar(place, mean, color=colour, width=0.6, alpha=0.75)
        ax.plot(place + np.linspace(-0.15, 0.15, len(values)), values, "k.", markersize=5)
        ax.text(place, low + 0.2, f"mean {mean:.2f}", ha="center", va="bottom", fontsize=8)
    ax.set_xticks(range(len(accuracy)), [name.replace(" ", "\n", 1) for name in accuracy])
    ax.set_ylim(low, 100.2)
    ax.set_ylabel("correct, per cent of digits never seen")
    ax.set_title("One dot a seed")
