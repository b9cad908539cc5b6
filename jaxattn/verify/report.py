"""The report: a table that prints, and the same as JSON and as a page."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .execute import Result
from .page import page

SLOW = 20.0
CELLS = {"pass": "pass", "fail": "FAIL", "unsupported": "-", "": ""}


class AttentionError(AssertionError):
    """Some checks failed; the text says which and how to see it again."""


@dataclass(frozen=True)
class Report:
    """All results on one function, with what is needed to get them again.

    >>> from jaxattn.verify import check_all, dense_attention
    >>> report = check_all(dense_attention, only=("noether",), dtypes=("float32",))
    >>> report.raise_for_failures()
    """

    name: str
    results: tuple[Result, ...]
    versions: str
    supports: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that failed."""
        return tuple(result for result in self.results if result.status == "fail")

    @property
    def passed(self) -> bool:
        """Nothing failed, at least one check passed, and the run came to its end."""
        ran = any(result.status == "pass" for result in self.results)
        return ran and not self.failures and not self.interrupted

    def raise_for_failures(self) -> None:
        """Raise an `AttentionError` with every failure, or if no check was run at all."""
        if self.failures:
            raise AttentionError(f"{self.name}\n\n{failure_text(self)}")
        if not any(result.status == "pass" for result in self.results):
            raise AttentionError(f"{self.name}: no check passed, because none was run")

    def to_json(self) -> str:
        """Everything in the report, as JSON."""
        summary = {"passed": self.passed, "counts": counts(self.results), "causes": causes(self)}
        return json.dumps(summary | asdict(self), indent=1, ensure_ascii=False)

    def to_html(self) -> str:
        """One page that needs nothing else."""
        return page(self.name, about(self), rows(self), failure_text(self), columns(self))

    def __str__(self) -> str:
        parts = [
            self.name,
            about(self),
            "",
            text_table(self),
            "",
            failure_text(self),
            verdict(self),
        ]
        return "\n".join(part for part in parts if part is not None)


def counts(results: Iterable[Result]) -> dict[str, int]:
    """How many passed, failed and were unsupported."""
    found = {"pass": 0, "fail": 0, "unsupported": 0}
    for result in results:
        found[result.status] += 1
    return found


def about(report: Report) -> str:
    """Versions, claims and time in a line."""
    claims = ", ".join(report.supports) or "the ordinary features"
    return f"{report.versions}; claims: {claims}; seed {report.seed}; {report.seconds:.1f} s"


def columns(report: Report) -> tuple[str, ...]:
    """The dtypes that were tried, in order."""
    return tuple(dict.fromkeys(result.dtype for result in report.results))


def rows(report: Report) -> list[tuple[str, str, str, dict[str, Result]]]:
    """(family, check, formula, dtype -> result), in the order of the run's table."""
    found: dict[str, tuple[str, str, str, dict[str, Result]]] = {}
    for result in report.results:
        row = (result.family, result.check, result.formula, {})
        found.setdefault(result.check, row)[3][result.dtype] = result
    return list(found.values())


def text_table(report: Report) -> str:
    """A line a check: family, name, a cell a dtype, seconds, formula."""
    dtypes, lines = columns(report), []
    lines.append(
        f"{'':12} {'check':26} " + " ".join(f"{d:8}" for d in dtypes) + " seconds  property"
    )
    before = ""
    for family, check, formula, by_dtype in rows(report):
        cells = [CELLS[by_dtype[d].status] if d in by_dtype else "" for d in dtypes]
        seconds = sum(result.seconds for result in by_dtype.values())
        shown = family if family != before else ""
        lines.append(
            f"{shown:12} {check:26} "
            + " ".join(f"{c:8}" for c in cells)
            + f" {seconds:7.2f}  {formula}"
        )
        before = family
    return "\n".join(lines)


def causes(report: Report) -> dict[str, list[str]]:
    """Causes that explain two failures or more, each with the checks it explains."""
    found: dict[str, list[str]] = {}
    for result in report.failures:
        if result.cause:
            found.setdefault(result.cause, []).append(f"{result.check} [{result.dtype}]")
    return {cause: names for cause, names in found.items() if len(names) > 1}


def failure_text(report: Report) -> str:
    """Each cause once, with one failure in full; then every failure that stands alone."""
    shared = causes(report)
    parts = [_cause_text(report, cause, names) for cause, names in shared.items()]
    parts += [result.message for result in report.failures if result.cause not in shared]
    return "\n\n".join(parts + notes(report))


def _cause_text(report: Report, cause: str, names: list[str]) -> str:
    results = [result for result in report.failures if result.cause == cause]
    verb = f"raises {cause}" if cause.split(" ", 1)[0].endswith(":") else cause
    measured = (f"{name}{_error(result)}" for name, result in zip(names, results, strict=True))
    listed = textwrap.fill(", ".join(measured), 98, initial_indent="  ", subsequent_indent="  ")
    title = f"ONE CAUSE, {len(names)} failures: {report.name} {verb}"
    return f"{title}\n{listed}\n  the first of them: {results[0].message}"


def _error(result: Result) -> str:
    if result.error is None or result.tolerance is None:
        return ""
    return f" {result.error:.2g} > {result.tolerance:.2g}"


def notes(report: Report) -> list[str]:
    """What was printed, and what was slow: no failures, but worth knowing."""
    noisy = [result for result in report.results if result.noise]
    slow = [result for result in report.results if result.seconds > SLOW]
    found = []
    if noisy:
        first = f"first in {noisy[0].check}: {noisy[0].noise}"
        found.append(f"printed or warned in {len(noisy)} checks, {first}")
    if slow:
        listed = (f"{result.check} [{result.dtype}] {result.seconds:.0f} s" for result in slow)
        found.append("slow: " + ", ".join(listed))
    return found


def verdict(report: Report) -> str:
    """The last line: how many of each, and how many different causes."""
    found = counts(report.results)
    alone = sum(result.cause not in causes(report) for result in report.failures)
    number = alone + len(causes(report))
    reasons = f" ({number} cause{'s' * (number != 1)})" if number else ""
    ended = "; INTERRUPTED, the rest was not run" if report.interrupted else ""
    told = f"{found['pass']} passed, {found['fail']} failed{reasons}"
    return f"\n{told}, {found['unsupported']} unsupported{ended}"
