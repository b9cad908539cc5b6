"""Find the experiments, run them one after the other, and let none of them stop the others."""

import ast
import importlib
import re
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.markup import escape

from experiments.report import Outcome, Result, checked_result, short

FOLDER = Path(__file__).parent
WITH_OPTIONS = "generate"
MARKS = {
    "holds": "[green]holds[/]",
    "fails": "[red]fails[/]",
    "raised": "[red]raised an error[/]",
    "skipped": "[yellow]skipped[/]",
    "interrupted": "[yellow]interrupted[/]",
}


class Experiment(NamedTuple):
    """A file with `run(out, quick)`, read but not yet imported."""

    name: str
    about: str
    minutes: float
    package: str

    @property
    def claim(self) -> str:
        """The first paragraph of the header, on one line."""
        first = self.about.strip().split("\n\n")[0]
        return " ".join(re.sub(r"^Claim:\s*", "", first).split())

    @property
    def command(self) -> str:
        """How to run it alone."""
        return f"python -m experiments {self.name}"


def discover(folder: Path = FOLDER) -> list[Experiment]:
    """Every file of the folder that defines `run`, the shortest first.

    Files are read, not imported, so that one that needs a missing package is listed all the same.
    """
    found = []
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            about = ast.get_docstring(tree) or path.stem.replace("_", " ")
            found.append(Experiment(path.stem, about, expected_minutes(about), folder.name))
    return sorted(found, key=lambda experiment: (experiment.minutes, experiment.name))


def expected_minutes(about: str) -> float:
    """The number before or after "minutes" in a header; 1 where it says nothing."""
    match = re.search(r"minutes?\W+(\d+\.?\d*)|(\d+\.?\d*)[ -]*min", about, re.IGNORECASE)
    return float(match.group(1) or match.group(2)) if match else 1.0


def select(experiments: list[Experiment], names: Iterable[str]) -> list[Experiment]:
    """The named experiments in the order of the names; all of them for no name.

    Raises:
      ValueError: there is no such experiment.
    """
    names = list(dict.fromkeys(names))
    known = {experiment.name: experiment for experiment in experiments}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"no experiment is named {', '.join(unknown)}; there are: {', '.join(known)}"
        )
    return [known[name] for name in names] or experiments


def check_options(experiments: list[Experiment], options: dict[str, str]) -> None:
    """Options beside the common ones belong to one experiment, which is named alone.

    Raises:
      ValueError: another one is chosen, or several.
    """
    if options and [experiment.name for experiment in experiments] != [WITH_OPTIONS]:
        flags = ", ".join(f"--{name}" for name in options)
        raise ValueError(
            f"{flags} belong to the experiment {WITH_OPTIONS}: python -m experiments "
            f"{WITH_OPTIONS} {flags} ..."
        )


def make_folder(out: Path) -> None:
    """Make the folder that everything goes into.

    Raises:
      ValueError: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder, and {out} cannot: {error.strerror}") from None


def run_all(
    experiments: list[Experiment],
    out: Path,
    quick: bool,
    console: Console,
    options: dict[str, str] | None = None,
) -> list[Outcome]:
    """The outcome of each experiment; after Ctrl-C, of those that ran so far."""
    outcomes = []
    for number, experiment in enumerate(experiments, 1):
        console.rule(f"{number}/{len(experiments)} {experiment.name}", align="left")
        console.print(f"[dim]{escape(experiment.claim)}[/]")
        if not quick:
            console.print(f"[dim]about {experiment.minutes:g} min[/]")
        outcome = execute(experiment, out / experiment.name, quick, options or {})
        outcomes.append(outcome)
        tell(outcome, console)
        if outcome["status"] == "interrupted":
            break
    return outcomes


def execute(experiment: Experiment, out: Path, quick: bool, options: dict[str, str]) -> Outcome:
    """Run one experiment into its folder, and turn whatever happens into an `Outcome`."""
    start = time.perf_counter()
    wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    result, status, error = Result(claims=[], numbers={}, figures=[]), "raised", ""
    try:
        out.mkdir(parents=True, exist_ok=True)
        module = importlib.import_module(f"{experiment.package}.{experiment.name}")
        result = checked_result(module.run(out, quick, **options))
        status = "holds" if all(claim["holds"] for claim in result["claims"]) else "fails"
    except KeyboardInterrupt:
        status, error = "interrupted", "stopped by Ctrl-C"
    except ModuleNotFoundError as missing:
        error = traceback.format_exc()
        if is_foreign(missing, experiment.package):
            status, error = "skipped", said(missing)
    except Exception:
        error = traceback.format_exc()
    finally:
        jax.config.update("jax_enable_x64", wide)  # one experiment's precision is its own
    return Outcome(
        name=experiment.name,
        claim=experiment.claim,
        about=experiment.about,
        command=experiment.command + " --quick" * quick,
        status=status,
        seconds=round(time.perf_counter() - start, 2),
        error=error,
        **result,
    )


def is_foreign(missing: ModuleNotFoundError, package: str) -> bool:
    """Whether the missing module is somebody else's: ours must not be missing."""
    return (missing.name or "").split(".")[0] not in ("", "jaxattn", "experiments", package)


def said(missing: ModuleNotFoundError) -> str:
    """What is needed: in the experiment's words where it says how to install it."""
    if "pip install" in str(missing):
        return str(missing)
    return f"needs the package {missing.name}, which is not installed"


def tell(outcome: Outcome, console: Console) -> None:
    """Print claims with what was measured, and the error if there was one."""
    for claim in outcome["claims"]:
        mark = MARKS["holds" if claim["holds"] else "fails"]
        console.print(
            f"{mark}  {escape(claim['claim'])}: {escape(short(claim['measured']))} "
            f"[dim](expected {escape(str(claim['expected']))})[/]"
        )
    if outcome["error"]:
        console.print(escape(outcome["error"].strip()), style="dim", highlight=False)
    console.print(f"{MARKS[outcome['status']]} after {outcome['seconds']:.1f} s\n")


def anything(counts: dict[str, Any]) -> bool:
    """Whether some experiment came to an end, with claims or with an error."""
    return any(counts[status] for status in ("holds", "fails", "raised"))


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """How many claims hold, how many experiments ended how, and how long it took."""
    claims = [claim["holds"] for outcome in outcomes for claim in outcome["claims"]]
    statuses = [outcome["status"] for outcome in outcomes]
    return {
        "claims": len(claims),
        "hold": sum(claims),
        "seconds": sum(outcome["seconds"] for outcome in outcomes),
        **{status: statuses.count(status) for status in MARKS},
    }
