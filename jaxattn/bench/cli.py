"""`python -m jaxattn bench`: times of attention, ours beside others', as table, JSON and picture.

Exit status: 0, 2 wrong usage, 130 interrupted (what was measured is printed and written, and where
nothing was, an earlier bench.json stays).
"""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jaxattn.bench import plot
from jaxattn.bench.cases import CASES, MODES, QUICK, Case
from jaxattn.bench.clock import matmul_rate, race
from jaxattn.bench.contestants import Contestant, everybody
from jaxattn.bench.table import Ceilings, Row, machine, record, text


def main(argv: Sequence[str] | None = None) -> int:
    """Time what `argv` asks for, and return the exit status."""
    options = parser().parse_args(argv)
    cases = [case for case in chosen(options) if fit(case, options)]
    contestants = everybody(options.memory)
    try:
        check(options, cases, contestants)
    except ValueError as error:
        print(f"jaxattn bench: {error}", file=sys.stderr)
        return 2
    if options.against is not None:
        contestants = tuple(c for c in contestants if c.name in ("jaxattn", *options.against))
    before = matmul_rate()
    about = machine()
    print(f"{about['processor']}, {about['cores']} cores, {about['platform']}; {about['versions']}")
    print(f"XLA multiplies large float32 matrices at {before / 1e9:.0f} GFLOP/s", flush=True)
    rows: list[Row] = []
    status = 0
    try:
        for row in measured(cases, contestants, options):
            rows.append(row)
    except KeyboardInterrupt:
        status = 130
    if not rows:
        print("nothing was measured, and nothing is written", file=sys.stderr)
        return status
    finish(rows, contestants, Ceilings(before, matmul_rate() if not status else before), options)
    return status


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    names = lambda text: tuple(name for name in text.split(",") if name)  # noqa: E731
    found = argparse.ArgumentParser("jaxattn bench", description=(__doc__ or "").split("\n\n")[0])
    found.add_argument("--quick", action="store_true", help="three small cases")
    found.add_argument("--only", help="cases whose name or group contains this text")
    found.add_argument("--modes", type=names, default=MODES, help=f"default: {','.join(MODES)}")
    found.add_argument("--against", type=names, help="others to time, e.g. jax.nn,torch")
    found.add_argument("--longest", type=int, metavar="T", help="leave out longer cases")
    found.add_argument("--repeats", type=int, default=9, help="turns of each, at most")
    found.add_argument("--seconds", type=float, default=20, help="a case, after three turns each")
    found.add_argument("--memory", type=float, default=8, help="GiB of scores for dense paths")
    found.add_argument("--out", type=pathlib.Path, help="folder for bench.json, .md and .png")
    return found


def chosen(options: argparse.Namespace) -> Sequence[Case]:
    """The cases asked for."""
    cases = QUICK if options.quick else CASES
    if options.only is None:
        return cases
    return [case for case in cases if options.only in f"{case.group} {case.name}"]


def check(
    options: argparse.Namespace, cases: Sequence[Case], contestants: Sequence[Contestant]
) -> None:
    """A ValueError where there is nothing to do, or an option names what does not exist."""
    known = {"--modes": MODES, "--against": tuple(c.name for c in contestants)}
    for option, names in known.items():
        given = getattr(options, option[2:]) or ()
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(f"{option} takes {', '.join(names)}, got {', '.join(unknown)}")
    if not options.modes:
        raise ValueError(f"--modes takes {', '.join(MODES)}, got none")
    if not cases or options.repeats < 1:
        raise ValueError("no case is left; --only and --longest leave out, --repeats is at least 1")
    if options.out is not None:
        check_folder(options.out)


def check_folder(out: pathlib.Path) -> None:
    """Make the folder, before anything is measured for it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder, and {out} cannot: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise ValueError(f"--out must be a folder to write to, and {out} is read-only")


def fit(case: Case, options: argparse.Namespace) -> bool:
    """Whether a case is short enough."""
    return options.longest is None or case.length <= options.longest


def measured(
    cases: Sequence[Case], contestants: Sequence[Contestant], options: argparse.Namespace
) -> Iterator[Row]:
    """Every case in every mode, with progress on stderr."""
    jobs = [(case, mode) for case in cases for mode in options.modes]
    for number, (case, mode) in enumerate(jobs, 1):
        print(f"[{number}/{len(jobs)}] {case.name}, {mode}", file=sys.stderr, flush=True)
        yield Row(case, mode, race(contestants, case, mode, options.repeats, options.seconds))


def finish(
    rows: list[Row],
    contestants: Sequence[Contestant],
    ceilings: Ceilings,
    options: argparse.Namespace,
) -> None:
    """Print the table; write table, JSON and picture where a folder was named."""
    names = [contestant.name for contestant in contestants]
    table = text(rows, names, max(ceilings))
    print(table)
    if options.out is None:
        return
    (options.out / "bench.json").write_text(json.dumps(record(rows, ceilings), indent=1))
    (options.out / "bench.md").write_text(table + "\n")
    try:
        plot.draw(rows, names, options.out / "bench.png")
    except ImportError:
        print("no picture: matplotlib is not installed", file=sys.stderr)
    print(f"written to {options.out}", file=sys.stderr)
