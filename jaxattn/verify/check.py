"""One row of a family's table: a property, what it needs, and the mutant that it must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .compare import Measurement
from .problem import Problem
from .subject import Subject


@dataclass(frozen=True)
class Check:
    """A property of attention, and the function that measures it.

    run: (subject, problem) -> Measurement; its docstring has the property, the tolerance and why,
        and ends with the formula and the mutant as they stand here.
    formula: the property in one line. kills: a mutant that it fails, which the tests hold it to.
    needs: features without which the check is unsupported.
    once: only in the widest dtype. brief: in a quick run, only in the widest dtype.
    quick: part of a quick run.
    fault: what a failure means, for checks that measure one property in several ways, so that
        their failures are reported as one cause.
    """

    run: Callable[[Subject, Problem], Measurement]
    formula: str
    kills: str
    needs: tuple[str, ...] = ()
    once: bool = False
    brief: bool = False
    quick: bool = True
    fault: str = ""

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.run.__name__

    @property
    def family(self) -> str:
        """The name of its module."""
        return self.run.__module__.rsplit(".", 1)[-1]
