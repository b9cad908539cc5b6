"""`python -m jaxattn verify module:function`: the table on the screen, JSON and HTML on request.

Exit status: 0 everything passed, 1 something failed, 2 wrong usage, 130 interrupted (what was
measured until then is printed and written all the same; where nothing was, earlier files stay).
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from .adapters import KNOWN, with_partial
from .door import DTYPES, dtype_names, make_report, make_subject, results
from .execute import Result
from .report import Report
from .subject import Subject
from .table import CHECKS, chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the function named in `argv`, and return the exit status."""
    options = parser().parse_args(argv)
    if options.list:
        print("\n".join(f"{check.family:12} {check.name:26} {check.formula}" for check in CHECKS))
        return 0
    try:
        subject = find(options)
        checks = chosen(options.only, options.skip or (), options.quick)
        dtype_names(options.dtypes)
        check_files(options)
    except (ValueError, ImportError, AttributeError, TypeError) as error:
        print(f"jaxattn verify: {error}", file=sys.stderr)
        return 2
    report = measure(subject, checks, options)
    print(report)
    for path, text in ((options.json, report.to_json), (options.html, report.to_html)):
        if path and (report.results or not report.interrupted):
            pathlib.Path(path).write_text(text(), encoding="utf-8")
    return 130 if report.interrupted else 0 if report.passed else 1


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    names = lambda text: tuple(name for name in text.split(",") if name)  # noqa: E731
    found = argparse.ArgumentParser("jaxattn verify", description=(__doc__ or "").split("\n\n")[0])
    found.add_argument("function", nargs="?", help="module:function")
    found.add_argument("--causal", action="store_true", help="causal by itself, takes no mask")
    found.add_argument("--supports", type=names, help="features, e.g. --supports=-gqa,lse")
    found.add_argument("--dtypes", type=names, default=DTYPES, help="default: float32,float64")
    found.add_argument("--only", type=names, help="checks or families to run")
    found.add_argument("--skip", type=names, help="checks or families to leave out")
    found.add_argument("--quick", action="store_true", help="the cheaper half of the checks")
    found.add_argument("--seed", type=int, default=0)
    passed_on = "a keyword passed to the function, e.g. implementation=dense"
    found.add_argument(
        "--with", dest="keywords", action="append", default=[], metavar="NAME=VALUE", help=passed_on
    )
    found.add_argument("--json", metavar="FILE", help="write the report as JSON")
    found.add_argument("--html", metavar="FILE", help="write the report as a page")
    found.add_argument("--list", action="store_true", help="list the checks")
    return found


def find(options: argparse.Namespace) -> Subject:
    """The function that the options name, adapted where it is a well-known one."""
    module_name, colon, attribute = (options.function or "").partition(":")
    if not colon or not attribute:
        raise ValueError(f"expected module:function, got {options.function!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's own files, as for `python -m`
    module = importlib.import_module(module_name)
    function = functools.reduce(getattr, attribute.split("."), module)
    keywords = dict(_keyword(text) for text in options.keywords)
    bind = functools.partial(functools.partial, **keywords) if keywords else lambda f: f
    name = options.function + "".join(f" {text}" for text in options.keywords)
    adapted, supports = _adapt(options, bind(function), bind, module)
    subject = make_subject(adapted, options.causal, supports, name)
    return dataclasses.replace(subject, command=command_of(options))


def check_files(options: argparse.Namespace) -> None:
    """A ValueError where a report could not be written, before anything is measured for it."""
    for option, path in (("--json", options.json), ("--html", options.html)):
        if path is None:
            continue
        file = pathlib.Path(path)
        if file.is_dir():
            raise ValueError(f"{option} must name a file, and {path} is a folder")
        if not file.parent.is_dir():
            raise ValueError(f"{option} {path}: there is no folder {file.parent}; make it first")
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise ValueError(f"{option} {path} cannot be written")


def command_of(options: argparse.Namespace) -> str:
    """The command line that names this function and its claims again."""
    package = __package__ or "verify"
    words = ["jaxattn", "verify"] if package == "jaxattn.verify" else [package]
    words = ["python", "-m", *words, options.function, *(["--causal"] * options.causal)]
    words += [f"--supports={','.join(options.supports)}"] if options.supports else []
    words += [f"--with={text}" for text in options.keywords]
    return shlex.join(words)


def _adapt(
    options: argparse.Namespace, function: Callable[..., Any], bind: Callable[..., Any], module: Any
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """What is known of the function, before what the options claim of it."""
    given = tuple(options.supports or ())
    if options.function in KNOWN:
        known = KNOWN[options.function]
        return known.adapt(function), (*known.supports, *given)
    if options.function == "jaxattn:attention":
        both = with_partial(function, bind(module.partial_attention))
        linear = ("linear_memory",) if "implementation=blockwise" in options.keywords else ()
        return both, ("lse", "bias", "scale", *linear, *given)
    return function, given


def measure(subject: Subject, checks: Sequence[Any], options: argparse.Namespace) -> Report:
    """Run the checks with progress on stderr; an interrupt ends the run and keeps the results."""
    found: list[Result] = []
    start, interrupted = time.perf_counter(), False
    total = sum(1 if check.once else len(options.dtypes) for check in checks)
    try:
        for result in results(subject, dtypes=options.dtypes, checks=checks, seed=options.seed):
            found.append(result)
            show(sys.stderr, result, len(found), total)
    except KeyboardInterrupt:
        interrupted = True
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return make_report(subject, found, options.seed, time.perf_counter() - start, interrupted)


def show(stream: TextIO, result: Result, done: int, total: int) -> None:
    """Progress: a line rewritten on a terminal; elsewhere one for each failure and every tenth."""
    text = f"[{done}/{total}] {result.check} {result.dtype}: {result.status}"
    if stream.isatty():
        print(f"\r\033[K{text}", end="", file=stream, flush=True)
    elif result.status == "fail" or done % 10 == 0 or done == total:
        print(text, file=stream, flush=True)


def _keyword(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--with takes NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
