"""The figure of `scaling_prevents_saturation.py`."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments import figures
from experiments import saturation_integrals as exact
from experiments.saturation_rows import Rows


def draw(
    out: Path, given: dict[float, Rows], scaled: dict[int, Rows], plain: dict[int, Rows], keys: int
) -> Path:
    """Means over c beside the integrals, and how ‖J‖ is spread with and without scaling."""
    made, ((first, second), (third, fourth)) = figures.figure(columns=2, rows=2, height=3.3)
    means_over_c(first, given, "entropy", exact.expected_entropy, keys)
    means_over_c(second, given, "largest weight", exact.expected_largest_weight, keys)
    means_over_c(third, given, "‖J‖²", exact.expected_jacobian_norm_squared, keys)
    third.plot(
        list(given),
        [np.median(rows["‖J‖²"]) for rows in given.values()],
        "v:",
        color=figures.ORANGE,
        markersize=5,
        label="median row",
    )
    third.set(yscale="log", ylim=(1e-7, 1), title="The mean stays, the median freezes")
    first.set(ylim=(0, None), title=f"Entropy of a row of {keys} weights")
    second.set(ylim=(0, 1), title="Largest weight of a row")
    for ax in (first, second, third):
        ax.legend(frameon=False, fontsize=8)
    quantiles(fourth, scaled, figures.BLUE, "with 1/√d", 0.94)
    quantiles(fourth, plain, figures.VERMILION, "without", 1.06)
    fourth.set(xscale="log", yscale="log", xlabel="head size d", ylabel="‖J‖ of a row")
    fourth.set_xticks(list(scaled), [str(d) for d in scaled], minor=False)
    fourth.minorticks_off()
    fourth.set_title("5, 25, 50, 75, 95 % of rows: a heavy tail")
    fourth.legend(frameon=False, fontsize=8, loc="lower left")
    return figures.save(made, out, "saturation")


def means_over_c(ax: Axes, given: dict[float, Rows], name: str, integral, keys: int) -> None:
    """The integral as a line, and means of drawn rows as dots."""
    grid = np.geomspace(min(given), max(given), 21)
    ax.plot(grid, [integral(c, keys) for c in grid], color=figures.BLUE, label="exact integral")
    means = [rows[name].mean() for rows in given.values()]
    ax.plot(list(given), means, "o", color=figures.VERMILION, markersize=5, label="mean of rows")
    ax.axvline(1.0, color=figures.GREY, linewidth=0.8, linestyle=":")
    place = ax.get_xaxis_transform()
    ax.text(0.95, 0.2, "1/√d puts c here", transform=place, fontsize=7.5, rotation=90, ha="right")
    ax.set(xscale="log", xlabel="variance c of the scores", ylabel=f"mean {name}")


def quantiles(ax: Axes, found: dict[int, Rows], colour: str, label: str, shift: float) -> None:
    """For each d a thin line from 5 to 95 %, a thick one from 25 to 75 %, and the median."""
    for number, (d, rows) in enumerate(found.items()):
        low, quarter, middle, three, high = np.sqrt(
            np.quantile(rows["‖J‖²"], [0.05, 0.25, 0.5, 0.75, 0.95])
        )
        place = [d * shift] * 2
        ax.plot(place, [low, high], color=colour, linewidth=1)
        ax.plot(place, [quarter, three], color=colour, linewidth=4, solid_capstyle="butt")
        ax.plot(place[:1], [middle], "o", color="white", markeredgecolor=colour, markersize=5,
                label="_" * (number > 0) + label)  # fmt: skip
