"""The loss of a run over its steps, with the n-gram models as lines to get below."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from experiments import figures


def draw(folder: Path, lines: list[dict[str, Any]], counted: dict[str, float]) -> Path:
    """`loss.png` in the run's folder, from the lines of its metrics."""
    training = points(lines, "loss")
    validation = points(lines, "validation")
    made, ((ax,),) = figures.figure(width=7.4, height=4.2)
    ax.plot(*training, color=figures.SKY, linewidth=0.6, alpha=0.6)
    ax.plot(*smooth(*training), color=figures.BLUE, label="training, mean of 25 steps")
    ax.plot(*validation, "o-", color=figures.VERMILION, markersize=4, label="validation")
    lowest = min([*training[1], *validation[1], *counted.values()]) - 0.15
    highest = max([min(float(np.max(training[1])), 3.6), *counted.values()]) + 0.1
    ax.set_ylim(lowest, highest)
    label_lines(ax, counted, apart=(highest - lowest) / 26)
    ax.set(xlabel="step", ylabel="nats per byte", xlim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    ax.set_title("A small GPT on Python's reference texts" if counted else "A smoke run")
    return figures.save(made, folder, "loss")


def label_lines(ax: Axes, counted: dict[str, float], apart: float) -> None:
    """A dashed line for each model and its name beside it, names at least `apart`."""
    above = np.inf
    for name, nats in sorted(counted.items(), key=lambda item: -item[1]):
        ax.axhline(nats, color=figures.GREY, linewidth=0.9, linestyle="--")
        above = min(nats, above - apart)
        place = ax.get_yaxis_transform()
        label = f"{name} {nats:.2f}"
        ax.text(1.01, above, label, transform=place, fontsize=7.5, color=figures.GREY, va="center")


def points(lines: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the lines that have this value."""
    found = [(line["step"], line[name]) for line in lines if name in line]
    steps, values = zip(*found, strict=True)
    return np.array(steps), np.array(values)


def smooth(steps: np.ndarray, values: np.ndarray, width: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """The mean over each `width` successive steps, at their last."""
    width = min(width, len(values))
    return steps[width - 1 :], np.convolve(values, np.full(width, 1 / width), mode="valid")
