"""Times over length, in one picture."""

import pathlib
from collections.abc import Sequence

from jaxattn.bench.table import Row


def draw(rows: Sequence[Row], names: Sequence[str], path: pathlib.Path) -> None:
    """One panel for each mask and derivative of the cases that sweep the length."""
    from matplotlib.figure import Figure

    swept = [row for row in rows if row.case.group in ("length", "window")]
    panels = list(dict.fromkeys((row.case.mask, row.mode) for row in swept))
    if not panels:
        return
    figure = Figure(figsize=(4 * min(4, len(panels)), 3.2 * -(-len(panels) // 4)))
    for number, (mask, mode) in enumerate(panels, 1):
        axes = figure.add_subplot(-(-len(panels) // 4), min(4, len(panels)), number)
        for name in names:
            points = [
                (row.case.length, 1e3 * timing.median)
                for row in swept
                if (row.case.mask, row.mode) == (mask, mode)
                for timing in row.timings
                if timing.contestant == name and timing.median is not None
            ]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker=".", label=name)
        axes.set(xscale="log", yscale="log", title=f"{mask}, {mode}", xlabel="T = S", ylabel="ms")
        axes.grid(alpha=0.3)
        if number == 1:
            axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
