"""Peers under verification: JAX's attentions agree but on empty rows, on padding and in float64.

Claim     Released attentions agree on ordinary inputs in float32. They part where a row is empty,
          where padding holds NaN, and in float64, which some compute in float32. Every
          implementation of jaxattn passes what it claims.
Command   python -m experiments peers_under_verification        (--quick for the short form)
Minutes   2 (two cores, with Flax; 4 with all peers)
Expected  Of 124 measurements jax.nn 0.10.2 passes 63. In float32 it fails padding_poison,
          query_poison and empty_rows, and nothing else. In float64 it fails these (and
          third_order_poison), and 44 more because it computes in float32 inside; likewise Flax NNX
          0.12.8 (43) and Keras 3.15.1 (49), but neither Flax Linen, Equinox 0.13.8 nor tokamax
          0.0.12, which fail padding and empty rows alone, but that Equinox and tokamax raise for
          no keys at all. Torch 2.13 (values only, through NumPy) fails padding_poison and
          query_poison; its empty rows are 0. jaxattn fails nothing.

Versions are in the table. What a peer does not document is not held against it: features that it
does not claim count as unsupported. What is marked † is a convention: no paper says what an empty
row is (here 0; where a mask is a large finite number it is the mean of the values) or whether what
nobody may attend to may be NaN. Peers that are not installed are named as such and left out.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib.metadata
import multiprocessing
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxattn
from experiments import figures
from jaxattn.verify import Report, adapters, check_all, modules
from jaxattn.verify.report import counts

QUICK = ("values", "symmetries", "structure", "padding", "empty", "noether")
POISON = ("padding_poison", "query_poison", "third_order_poison")
CONVENTIONS = (*POISON, "empty_rows", "empty_rows_second_order", "empty_rows_lse")
NO_JAX = ("-jit", "-vmap", "-jvp", "-vjp", "-shard_map", "-traced_mask")
OURS = ("lse", "bias", "scale")
IMPORTS = "from jaxattn.verify import adapters, check_all, modules"
INSIDE = "computes in"  # how the report's cause for low inner precision begins


class Peer(NamedTuple):
    """A row of the table: its package, how to make the function, and what it claims."""

    package: str
    make: Callable[[], Callable[..., Any]]
    supports: tuple[str, ...]
    expression: str  # what makes the function, in words that `IMPORTS` knows


def known(package: str, module: str, make: Callable[[], Callable[..., Any]]) -> Peer:
    """A peer that `adapters` knows, with the claims that it has there."""
    supports = adapters.KNOWN[f"{module}:dot_product_attention"].supports
    return Peer(package, make, supports, f"adapters.{make.__name__}()")


def ours(name: str) -> Callable[..., Any]:
    """One implementation of jaxattn."""
    bind = functools.partial(functools.partial, implementation=name)
    return adapters.with_partial(bind(jaxattn.attention), bind(jaxattn.partial_attention))


PEERS = {
    "jaxattn dense": Peer("jaxattn", lambda: ours("dense"), OURS, 'ours("dense")'),
    "jaxattn blockwise": Peer(
        "jaxattn", lambda: ours("blockwise"), (*OURS, "linear_memory"), 'ours("blockwise")'
    ),
    "jax.nn": known("jax", "jax.nn", adapters.jax_nn),
    "Flax NNX": known("flax", "flax.nnx", adapters.flax_nnx),
    "Flax Linen": known("flax", "flax.linen", adapters.flax_linen),
    "Equinox": Peer("equinox", modules.equinox, ("-gqa",), "modules.equinox()"),
    "Keras on JAX": Peer(
        "keras", modules.keras, ("-gqa", "-batch_axes", "-value_head_size"), "modules.keras()"
    ),
    "tokamax": known("tokamax", "tokamax", adapters.tokamax),
    "torch SDPA": Peer("torch", modules.torch_sdpa, NO_JAX, "modules.torch_sdpa()"),
}


def run(out: pathlib.Path, quick: bool) -> dict[str, Any]:
    """Judge every peer that is installed and every implementation of jaxattn; write the tables."""
    out.mkdir(parents=True, exist_ok=True)
    versions = {name: version(peer.package) for name, peer in PEERS.items()}
    installed = [name for name in PEERS if versions[name]]
    absent = [f"{name} ({PEERS[name].package})" for name in PEERS if not versions[name]]
    reports = {}
    for name, report in zip(installed, judge_all(installed, quick), strict=True):
        if isinstance(report, str):
            absent.append(f"{name}: {report}")
            continue
        reports[f"{name} {versions[name]}"] = report
        stem = name.replace(" ", "_").replace(".", "_").lower()
        (out / f"{stem}.html").write_text(report.to_html(), encoding="utf-8")
        (out / f"{stem}.json").write_text(report.to_json(), encoding="utf-8")
    (out / "table.md").write_text(table(reports, absent), encoding="utf-8")
    numbers = {name: " | ".join(map(str, cells(report))) for name, report in reports.items()}
    left_out = {"not installed, left out": ", ".join(absent) or "none"}
    return {
        "claims": claims(reports),
        "numbers": numbers | left_out,
        "figures": [heat_map(out, reports)],
    }


def version(package: str) -> str:
    """The version of an installed package, or nothing."""
    try:
        return jaxattn.__version__ if package == "jaxattn" else importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def judge_all(names: list[str], quick: bool) -> list[Report | str]:
    """The reports, two at a time, each in a process of its own: peers cannot disturb each other."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, context, max_tasks_per_child=1) as pool:
        return list(pool.map(judge, names, [quick] * len(names)))


def judge(name: str, quick: bool) -> Report | str:
    """The report on one peer, on the CPU; or why there is none."""
    jax.config.update("jax_platforms", "cpu")
    os.environ.setdefault("KERAS_BACKEND", "jax")
    peer = PEERS[name]
    try:
        function = peer.make()
    except Exception as error:  # installed, and broken or for other versions: say so, go on
        return f"{type(error).__name__}: {error}"
    only = QUICK if quick else None
    return check_all(function, supports=peer.supports, only=only, quick=quick, name=peer.expression)


def failed(report: Report, dtype: str) -> set[str]:
    """The names of the checks that failed in one dtype, but for low precision inside."""
    wrong = (r for r in report.failures if not r.cause.startswith(INSIDE))
    return {r.check for r in wrong if r.dtype == dtype}


def claims(reports: dict[str, Report]) -> list[dict[str, Any]]:
    """What the docstring expects, beside what was measured."""
    told = lambda names: ", ".join(sorted(names)) or "none"  # noqa: E731
    found = []
    for name, report in reports.items():
        narrow, wide = failed(report, "float32"), failed(report, "float64")
        inside = [r for r in report.failures if r.cause.startswith(INSIDE)]
        if name.startswith("jax.nn"):
            expected = {"padding_poison", "query_poison", "empty_rows"}
            text = f"{name} in float32 fails on padding and empty rows, and nothing else"
            found.append(_claim(text, told(expected), told(narrow), narrow == expected))
            holds = bool(inside) and wide <= set(CONVENTIONS)
            measured = f"{len(inside)} for that cause; besides: {told(wide)}"
            text = f"{name} in float64 fails but by the same and by computing in float32"
            found.append(_claim(text, "one cause, and the same", measured, holds))
        if name.startswith("jaxattn"):
            number = len(report.failures)
            found.append(_claim(f"{name} passes what it claims", "0", str(number), number == 0))
        if name.startswith("torch"):
            holds = narrow | wide == set(POISON[:2])
            text = f"{name}, values only, fails on padding alone"
            found.append(_claim(text, told(set(POISON[:2])), told(narrow | wide), holds))
    return found


def _claim(claim: str, expected: str, measured: str, holds: bool) -> dict[str, Any]:
    return {"claim": claim, "expected": expected, "measured": measured, "holds": holds}


def cells(report: Report) -> tuple[Any, ...]:
    """Passed, failed, unsupported, and which failed."""
    by_check: dict[str, list[str]] = {}
    for result in report.failures:
        if not result.cause.startswith(INSIDE):
            by_check.setdefault(result.check, []).append(result.dtype)
    own = [f"{check}{'†' * (check in CONVENTIONS)}" for check in by_check]
    inside = [r for r in report.failures if r.cause.startswith(INSIDE)]
    own += [f"{len(inside)} in {inside[0].dtype}: {inside[0].cause}"] if inside else []
    return (*counts(report.results).values(), ", ".join(own) or "none")


def table(reports: dict[str, Report], absent: list[str]) -> str:
    """Who fails what, in Markdown, with a line each to see it again."""
    lines = ["| implementation | passed | failed | unsupported | fails |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(map(str, cells(r)))} |" for name, r in reports.items()]
    lines += [
        "",
        "† a convention, on which no paper speaks and implementations differ.",
        "",
        f"To see one again, after `{IMPORTS}`:",
        "",
    ]
    for name, report in reports.items():
        checks = tuple(dict.fromkeys(result.check for result in report.failures))[:1]
        claimed = f", supports={report.supports}" if report.supports else ""
        lines += [f"- {name}: `check_all({report.name}, only={checks}{claimed})`"] if checks else []
    lines += ["", *(f"Not installed, left out: {text}" for text in absent)]
    return "\n".join(lines) + "\n"


def heat_map(out: pathlib.Path, reports: dict[str, Report]) -> pathlib.Path:
    """Checks by implementations: the worse of the two dtypes in each cell."""
    from matplotlib.colors import ListedColormap

    checks = list(dict.fromkeys(r.check for report in reports.values() for r in report.results))
    cells = np.zeros((len(checks), len(reports)), int)
    worth = {"unsupported": 0, "pass": 1, "fail": 3}
    for column, report in enumerate(reports.values()):
        for r in report.results:
            value = 2 if r.cause.startswith(INSIDE) else worth[r.status]
            row = checks.index(r.check)
            cells[row, column] = max(cells[row, column], value)
    colours = ListedColormap(["#eeeeee", figures.SKY, figures.ORANGE, figures.VERMILION])
    made, ((axes,),) = figures.figure(width=3 + 0.5 * len(reports), height=1.5 + 0.15 * len(checks))
    axes.imshow(cells, cmap=colours, vmin=0, vmax=3, aspect="auto")
    axes.grid(False)
    axes.set_xticks(range(len(reports)), list(reports), rotation=60, ha="right")
    axes.set_yticks(range(len(checks)), checks, fontsize=6)
    axes.set_title("blue passes, red fails, orange low precision inside, grey not claimed")
    return figures.save(made, out, "peers_under_verification")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
