"""The figures of `prompts_draw_digits.py`."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import figures
from experiments.prompted_digits import PAPER, WORDS, sentence

ACROSS, INK = 8, 1.85  # samples in a row; the darkest pixel there is


def draw_samples(out: Path, pictures: np.ndarray, words: np.ndarray, right: np.ndarray) -> Path:
    """Samples under their prompts; a prompt that is not met stands in red.

    Args:
      out: folder.
      pictures: `[B, 16, 16, 1]`, B a multiple of 8.
      words: `[B, 3]`.
      right: `[B]`.
    """
    rows = len(pictures) // ACROSS
    made = Figure(figsize=(11, 1.55 * rows + 0.3), layout="constrained", dpi=150)
    for number, ax in enumerate(made.subplots(rows, ACROSS, squeeze=False).flat):
        show(ax, pictures[number, ..., 0])
        colour = "black" if right[number] else figures.VERMILION
        ax.set_title(sentence(words[number]), size=8, color=colour)
    made.suptitle("The first samples: prompts of training above, pairs never trained on below")
    return figures.save(made, out, "samples")


def draw_words(out: Path, path: np.ndarray, maps: np.ndarray, words: np.ndarray) -> Path:
    """From noise to picture, and under it where each word is read.

    Args:
      out: folder.
      path: pictures at M moments, `[M, B, 16, 16, 1]`.
      maps: weights of words at these moments, in one block, mean over heads, `[M, B, P, S]`.
      words: `[B, S]`.
    """
    moments, count = maps.shape[:2]
    made = Figure(figsize=(12, 4.4), layout="constrained", dpi=150)
    parts: Any = made.subfigures(1, count, squeeze=False)
    for number, part in enumerate(parts.flat):
        axes = part.subplots(1 + maps.shape[-1], moments)
        side = round(maps.shape[2] ** 0.5)
        for moment in range(moments):
            show(axes[0, moment], path[moment, number, ..., 0])
            for row, word in enumerate(words[number], 1):
                weights = maps[moment, number, :, row - 1].reshape(side, side)
                axes[row, moment].imshow(weights, cmap="viridis", vmin=0, vmax=1)
                bare(axes[row, moment])
                if moment == 0:
                    axes[row, 0].set_ylabel(WORDS[word], size=9)
        part.suptitle(sentence(words[number]), size=10)
    return figures.save(made, out, "words")


def show(ax: Axes, picture: np.ndarray) -> None:
    """Ink on paper."""
    ax.imshow(picture, cmap="gray_r", vmin=PAPER, vmax=INK)
    bare(ax)


def bare(ax: Axes) -> None:
    """No ticks."""
    ax.set_xticks([])
    ax.set_yticks([])
