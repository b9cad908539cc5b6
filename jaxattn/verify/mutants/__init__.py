"""Broken attentions, each wrong in one way that has been seen or could be: `MUTANTS` has them all.

Every check names a mutant that it must fail, and every mutant is failed by a check; the tests
hold both. Take one to see what the toolkit says of it:

    python -m jaxattn verify jaxattn.verify.mutants:no_rescale
"""

from .table import MUTANTS as MUTANTS
from .table import Mutant as Mutant
from .table import mutant as mutant


def __getattr__(name: str):  # noqa: ANN202 - a function or an error
    """Mutants by name, so that `jaxattn.verify.mutants:no_rescale` is an address."""
    for found in MUTANTS:
        if found.name == name:
            return found.function
    raise AttributeError(f"module {__name__!r} has no mutant {name!r}")
