"""How figures look: one palette that colour-blind readers can tell apart, no global state.

Figures are made without pyplot, so that they need no display and nothing has to be closed.
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# Okabe and Ito 2008, "Color universal design".
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
VERMILION, PURPLE, SKY, GREY = "#D55E00", "#CC79A7", "#56B4E9", "#555555"


def figure(columns: int = 1, rows: int = 1, width: float = 4.6, height: float = 3.5):
    """A figure of `[rows][columns]` axes, drawn plainly."""
    made = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    axes = made.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        tidy(ax)
    return made, axes


def tidy(ax: Axes) -> None:
    """No box, a faint grid behind the data, small ticks."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)
    ax.xaxis.label.set_fontsize(9)
    ax.yaxis.label.set_fontsize(9)
    ax.title.set_fontsize(10)


def save(made: Figure, out: Path, name: str) -> Path:
    """Write `out/name.png` and return its path."""
    path = out / f"{name}.png"
    made.savefig(path)
    return path


def hatched(size: int) -> Rectangle:
    """A hatched square behind a matrix of this size, seen where the matrix is left out."""
    return Rectangle(
        (-0.5, -0.5), size, size, hatch="////", edgecolor="#bbbbbb", facecolor="none", linewidth=0
    )
