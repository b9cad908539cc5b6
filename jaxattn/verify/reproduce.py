"""The few lines of Python that show a failure again."""

from __future__ import annotations

from .check import Check
from .problem import Problem
from .subject import Subject


def import_line(subject: Subject) -> tuple[str, str]:
    """(line, name) that bring the function in; for one without an address, a note and `f`."""
    module, _, name = subject.name.partition(":")
    if not name.isidentifier() or module == "__main__":
        return f"f = ...  # {subject.name}", "f"
    return f"from {module} import {name}", name


def reproduction(check: Check, subject: Subject, given: Problem) -> list[str]:
    """Lines that run this one check again and raise, and those that give its base inputs."""
    if subject.command:  # it may have been adapted on the way, so that an import would not do
        chosen = f"--only {check.name} --dtypes {given.dtype.name} --seed {given.seed}"
        return [f"{subject.command} {chosen}"]
    line, name = import_line(subject)
    package = __package__ or "verify"
    keywords = [f"only=({check.name!r},)", f"dtypes=({given.dtype.name!r},)", f"seed={given.seed}"]
    keywords += ["causal=True"] if subject.causal else []
    keywords += [f"supports={subject.supports!r}"] if subject.supports else []
    lines = [
        f"from {package} import check_all, problem",
        line,
        f"check_all({name}, {', '.join(keywords)}).raise_for_failures()",
    ]
    wide = given.dtype.name == "float64"
    mask = ", mask=given.mask" if "mask" in subject.features else ""
    drawn = f"given = problem({given.seed}, {given.dtype.name!r}, masking={given.masking!r})"
    look = f"{name}(*given.x{mask})  # the base input" + (", with jax_enable_x64" if wide else "")
    return [*lines, drawn, look]
