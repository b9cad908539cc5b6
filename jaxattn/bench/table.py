"""What was timed as a table, with ratios to ours and the share of the matmul rate, and as JSON."""

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any, NamedTuple

import jax

from jaxattn.bench.cases import Case
from jaxattn.bench.clock import Timing

PACKAGES = ("jaxattn", "jax", "jaxlib", "flax", "torch", "numpy")


class Row(NamedTuple):
    """One case, one derivative, everybody."""

    case: Case
    mode: str
    timings: list[Timing]

    def ours(self) -> Timing:
        """Our own timing."""
        return next(timing for timing in self.timings if timing.contestant == "jaxattn")


class Ceilings(NamedTuple):
    """XLA's rate of large products before and after the run, FLOP/s."""

    before: float
    after: float


def text(rows: Sequence[Row], names: Sequence[str], rate: float) -> str:
    """A Markdown table: our milliseconds, then everybody's time divided by ours."""
    heads = ["case", "derivative", "jaxattn ms", "of matmul rate"]
    heads += [f"{name} / ours" for name in names if name != "jaxattn"] + ["compile s"]
    lines = [heads, ["---"] * 2 + ["---:"] * (len(heads) - 2)]
    lines += [line(row, names, rate) for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def line(row: Row, names: Sequence[str], rate: float) -> list[str]:
    """The cells of one row."""
    ours = row.ours()
    if ours.median is None or ours.compile is None:
        return [row.case.name, row.mode, ours.reason or ""] + [""] * (len(names) + 1)
    share = row.case.flops(row.mode) / ours.median / rate
    cells = [row.case.name, row.mode, f"{1e3 * ours.median:.3g}", f"{share:.0%}"]
    by_name = {timing.contestant: timing for timing in row.timings}
    for name in names:
        if name != "jaxattn":
            other = by_name[name].median if name in by_name else None
            cells.append("-" if other is None else f"{other / ours.median:.2f}")
    return cells + [f"{ours.compile:.1f}"]


def record(rows: Sequence[Row], ceilings: Ceilings) -> dict[str, Any]:
    """Everything that was measured, and on what, ready for JSON."""
    return {
        "machine": machine(),
        "matmul_flops_per_second": ceilings._asdict(),
        "rows": [
            {
                **row.case._asdict(),
                "mode": row.mode,
                "flops": row.case.flops(row.mode),
                "seconds": [timing._asdict() for timing in row.timings],
            }
            for row in rows
        ],
    }


def machine() -> dict[str, Any]:
    """Processor, cores, versions."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "platform": jax.default_backend(),
        "python": platform.python_version(),
        "versions": found,
    }


def processor() -> str:
    """The model's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
