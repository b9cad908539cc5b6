"""All checks, in the order in which a report shows them: from what attention is to how it runs."""

from __future__ import annotations

from dataclasses import replace

from . import (
    batching,
    compositions,
    derivatives,
    empty,
    nestings,
    noether,
    numerics,
    padding,
    saturation,
    second,
    shapes,
    structure,
    symmetries,
    systems,
    taylor,
    transforms,
    values,
)
from .check import Check

CHECKS: tuple[Check, ...] = (
    *values.CHECKS,
    *symmetries.CHECKS,
    *structure.CHECKS,
    *padding.CHECKS,
    *empty.CHECKS,
    *shapes.CHECKS,
    *derivatives.CHECKS,
    *second.CHECKS,
    *taylor.CHECKS,
    *noether.CHECKS,
    *transforms.CHECKS,
    *batching.CHECKS,
    *nestings.CHECKS,
    *compositions.CHECKS,
    *numerics.CHECKS,
    *systems.CHECKS,
    *saturation.CHECKS,
)


def chosen(only: object = None, skip: object = (), quick: bool = False) -> tuple[Check, ...]:
    """The checks whose name or family is in `only` (all, if None) and not in `skip`.

    A quick run leaves out what is not quick, unless it is asked for by name, and has what is brief
    in the widest dtype alone.
    """
    wanted, unwanted = _names(only), _names(skip) or ()
    known = {check.name for check in CHECKS} | {check.family for check in CHECKS}
    unknown = sorted({*(wanted or ()), *unwanted} - known)
    if unknown:
        raise ValueError(f"no check or family is called {unknown}; there are {sorted(known)}")

    def keep(check: Check) -> bool:
        if {check.name, check.family} & set(unwanted):
            return False
        if wanted is not None and check.name in wanted:
            return True
        return (wanted is None or check.family in wanted) and (check.quick or not quick)

    kept = (check for check in CHECKS if keep(check))
    return tuple(replace(check, once=check.once or (quick and check.brief)) for check in kept)


def _names(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)  # type: ignore[arg-type]
