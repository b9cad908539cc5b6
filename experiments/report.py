"""What an experiment returns, what the runner makes of it, and `results.json`.

An experiment's `run(out, quick)` returns a plain dictionary, a `Result`:

    {"claims": [{"claim": text, "expected": text, "measured": text or number, "holds": bool}],
     "numbers": {name: number or list or text},
     "figures": [paths of images]}
"""

import importlib.metadata
import itertools
import json
import math
import os
import platform
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

import jaxattn


class Claim(TypedDict):
    """One sentence that can be false, and what was seen."""

    claim: str
    expected: str
    measured: Any
    holds: bool


class Result(TypedDict):
    """What `run` returns."""

    claims: list[Claim]
    numbers: dict[str, Any]
    figures: list[Path]


class Outcome(TypedDict):
    """A `Result` with its circumstances: one entry of `results.json`."""

    name: str
    claim: str
    about: str
    command: str
    status: Literal["holds", "fails", "raised", "skipped", "interrupted"]
    claims: list[Claim]
    numbers: dict[str, Any]
    figures: list[Path]
    seconds: float
    error: str


def checked_result(given: Any) -> Result:
    """The result of an experiment as a `Result`.

    Raises:
      TypeError, ValueError: it is no such dictionary, claims nothing, or names no figure file.
    """
    if not isinstance(given, dict) or not {"claims", "numbers", "figures"} <= set(given):
        raise TypeError(f"run must return a dict of claims, numbers and figures, got {given!r}")
    if not given["claims"]:
        raise ValueError("run returned no claim: an experiment claims something")
    claims = [checked_claim(claim) for claim in given["claims"]]
    figures = [Path(figure) for figure in given["figures"]]
    missing = [str(figure) for figure in figures if not figure.is_file()]
    if missing:
        raise ValueError(f"run returned figures that do not exist: {', '.join(missing)}")
    return Result(claims=claims, numbers=dict(given["numbers"]), figures=figures)


def checked_claim(given: Any) -> Claim:
    """One claim, with `holds` as a bool."""
    keys = ("claim", "expected", "measured", "holds")
    if not isinstance(given, dict) or set(keys) - set(given):
        raise TypeError(f"a claim must be a dict of {', '.join(keys)}, got {given!r}")
    if not isinstance(given["holds"], bool | np.bool_):
        raise TypeError(f"holds must be True or False, got {given['holds']!r}")
    return Claim(
        claim=given["claim"],
        expected=given["expected"],
        measured=given["measured"],
        holds=bool(given["holds"]),
    )


def circumstances(command: str, quick: bool) -> dict[str, Any]:
    """Where and with what a report was made."""
    versions = {"jaxattn": jaxattn.__version__}
    for package in ("jax", "jaxlib", "numpy", "flax", "optax"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "command": command,
        "quick": quick,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "versions": versions,
    }


def keep_earlier(out: Path, names: set[str]) -> None:
    """Put aside, as `earlier-1-*` and so on, a report on experiments that are not among `names`."""
    try:
        document = json.loads((out / "results.json").read_text(encoding="utf-8"))
        told = {entry["name"] for entry in document["experiments"]}
    except (OSError, ValueError, KeyError, TypeError):
        return
    if told <= names:
        return
    files = [out / "results.json", out / "report.html"]
    number = next(n for n in itertools.count(1) if not any(aside(f, n).exists() for f in files))
    for file in files:
        if file.exists():
            file.replace(aside(file, number))


def aside(file: Path, number: int) -> Path:
    """Where an earlier report goes."""
    return file.with_name(f"earlier-{number}-{file.name}")


def write_results(path: Path, outcomes: list[Outcome], about: dict[str, Any]) -> None:
    """Write `results.json`; figures as paths relative to it."""
    entries = []
    for outcome in outcomes:
        figures = [os.path.relpath(figure, path.parent) for figure in outcome["figures"]]
        entries.append({**outcome, "figures": figures})
    document = plain({"about": about, "experiments": entries})
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def plain(value: Any) -> Any:
    """The value in JSON's types; a float that JSON has not becomes its name."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and JAX
        return plain(value.tolist())
    return str(value)


def short(value: Any) -> str:
    """A number as one reads it: four digits, and no more than needed."""
    value = plain(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(short(item) for item in value)
    return str(value)
