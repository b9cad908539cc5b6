"""The figure of `attention_can_be_a_convolution.py`."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import figures


def draw(
    out: Path, truth: dict[str, np.ndarray], found: dict[str, np.ndarray], denoised: Any
) -> Path:
    """Above, kernels beside those that were learned; below, an edge with and without content."""
    made = Figure(figsize=(12, 5), layout="constrained", dpi=150)
    above, below = made.subplots(2, 6)
    for place, (name, kernel) in enumerate(truth.items()):
        for ax, x, what in zip(
            above[3 * place : 3 * place + 3],
            (kernel, found[name], found[name] - kernel),
            (f"{name}: the kernel", "learned by heads", "difference"),
            strict=True,
        ):
            matrix(ax, x, float(np.abs(kernel).max()), what)
    pictures = (denoised.clean, denoised.noisy, denoised.fixed, denoised.content)
    names = ("an edge", "with noise", "without content", "with content")
    for ax, picture, name in zip(below, pictures, names, strict=False):
        ax.imshow(picture, cmap="gray", vmin=-1.2, vmax=1.2)
        plain(ax, name)
    for ax, weights, name in zip(
        below[4:],
        (denoised.fixed_weights, denoised.content_weights),
        ("weights without content", "weights with content"),
        strict=True,
    ):
        ax.imshow(weights, cmap="viridis")
        plain(ax, name)
    return figures.save(made, out, "convolution")


def matrix(ax: Axes, x: np.ndarray, most: float, name: str) -> None:
    """A kernel with its numbers."""
    ax.imshow(x, cmap="RdBu_r", vmin=-most, vmax=most)
    for (row, column), number in np.ndenumerate(x):
        ax.text(column, row, f"{number:.2f}", ha="center", va="center", fontsize=6)
    plain(ax, name)


def plain(ax: Axes, name: str) -> None:
    """A title and no ticks."""
    ax.set_title(name, fontsize=9)
    ax.set_xticks([])
    ax.set_yticks([])
