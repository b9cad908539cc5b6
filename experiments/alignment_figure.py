"""What two models look at while they write, side by side."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments import figures


def draw(
    out: Path, texts: list[tuple[str, str]], columns: dict[str, np.ndarray], name: str = "alignment"
) -> Path:
    """A row for each pair of texts and a column for each model's weights `[n, L + 1, S]`.

    Rows of a picture are the characters that are written, columns those that are read.
    """
    made, axes = figures.figure(len(columns), len(texts), width=6.2, height=2.9)
    for column, (title, weights) in enumerate(columns.items()):
        for row, (source, target) in enumerate(texts):
            picture(axes[row][column], source, target, weights[row])
        axes[0][column].set_title(title)
    return figures.save(made, out, name)


def picture(ax: Axes, source: str, target: str, weights: np.ndarray) -> None:
    """One alignment, black for 1."""
    shown = weights[: len(target) + 1, : len(source)]
    ax.imshow(shown, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.grid(False)
    ax.set_xticks(range(len(source)), list(source), fontsize=7)
    ax.set_yticks(range(len(target) + 1), [*target, "end"], fontsize=7)
    ax.set(xlabel="reads", ylabel="writes")
