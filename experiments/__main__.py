"""`python -m experiments`: run the experiments and write `results.json` and `report.html`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments import page, report, runner


def main(
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    show: Annotated[bool, tyro.conf.arg(name="list")] = False,
    quick: bool = False,
    out: Path = Path("report"),
    model: str | None = None,
    prompt: str | None = None,
) -> int:
    """Run experiments: each checks the claim that it is named for.

    Args:
      names: which ones; all of them without a name.
      show: only list them, with the minutes that they take.
      quick: smaller sizes, to see that everything works.
      out: folder of results.json, report.html and the figures.
      model: whose weights, for the experiment generate.
      prompt: the text to go on with, likewise.

    Returns:
      The exit status: 0 if every claim holds, 1 if one does not or an experiment raised an
      error, 2 for a wrong name or folder, 130 after Ctrl-C; where nothing ended before it, an
      earlier report stays, and one on other experiments is kept, as earlier-1-report.html.
    """
    console = Console()
    experiments = runner.discover()
    given = {"model": model, "prompt": prompt}
    options = {name: text for name, text in given.items() if text is not None}
    try:
        chosen = runner.select(experiments, names)
        runner.check_options(chosen, options)
        if not show:
            runner.make_folder(out)
    except ValueError as error:
        console.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        return 2
    if show:
        console.print(listing(chosen))
        return 0
    outcomes = runner.run_all(chosen, out, quick, console, options)
    return finish(outcomes, out, quick, console)


def listing(experiments: list[runner.Experiment]) -> Table:
    """A table of names, minutes and claims."""
    table = Table(show_lines=True)
    table.add_column("experiment", min_width=max(len(e.name) for e in experiments))
    table.add_column("minutes")
    table.add_column("claim")
    for experiment in experiments:
        table.add_row(experiment.name, f"{experiment.minutes:g}", experiment.claim)
    return table


def finish(outcomes: list[report.Outcome], out: Path, quick: bool, console: Console) -> int:
    """Write the report of what ran, say where it is, and return the exit status."""
    about = report.circumstances(shlex.join(["python", "-m", "experiments", *sys.argv[1:]]), quick)
    counts = runner.summary(outcomes)
    if counts["interrupted"] and not runner.anything(counts):
        console.print("nothing came to an end, and nothing is written")
        return 130
    report.keep_earlier(out, {outcome["name"] for outcome in outcomes})
    report.write_results(out / "results.json", outcomes, about)
    (out / "report.html").write_text(page.page(outcomes, about, counts), encoding="utf-8")
    console.print(
        f"{counts['hold']} of {counts['claims']} claims hold, {counts['raised']} experiments "
        f"raised an error, {counts['skipped']} were skipped, {counts['seconds']:.0f} s in all"
    )
    console.print(f"report: {out / 'report.html'}", soft_wrap=True)
    if counts["interrupted"]:
        return 130
    return int(counts["fails"] > 0 or counts["raised"] > 0 or counts["claims"] == 0)


def command_line(arguments: list[str] | None = None) -> int:
    """`main`, with its arguments from the command line."""
    config = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(main, prog="python -m experiments", args=arguments, config=config)


def alone(file: str) -> NoReturn:
    """Run the one experiment of this file: the last line of each of them."""
    sys.exit(command_line([Path(file).stem, *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(command_line())
