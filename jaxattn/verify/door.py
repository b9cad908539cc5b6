"""The door: `check_all` for a report, `attention_checks` and a decorator for test suites."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from .check import Check
from .execute import Result, execute, prepare
from .features import claimed
from .problem import UNIT_ROUNDOFF
from .report import AttentionError, Report
from .subject import Subject
from .table import chosen

DTYPES = ("float32", "float64")
Function = Callable[..., Any]


def check_all(
    function: Function,
    *,
    causal: bool = False,
    supports: Iterable[str] | None = None,
    dtypes: Iterable[str] = DTYPES,
    only: Iterable[str] | str | None = None,
    skip: Iterable[str] | str = (),
    quick: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Report:
    """Judge an attention `function(query, key, value, mask=mask) -> out` by every check.

    Query `[*B, T, N, H]`, key `[*B, S, K, H]`, value `[*B, S, K, Hv]`, mask a boolean `[T, S]`.
    causal: the function is causal by itself and is called without a mask.
    supports: optional features it has, and, after a "-", ordinary ones it does not claim
        (`jaxattn.verify.features`); what is not claimed is reported as unsupported.
    only, skip: names of checks or of families. quick: the cheaper half of the checks.
    Works whatever the 64-bit setting of JAX is, and leaves it as it was.

    >>> from jaxattn.verify import check_all, dense_attention
    >>> report = check_all(dense_attention, only=("values",), supports=("lse",))
    >>> report.passed, len(report.failures)
    (True, 0)
    """
    subject = make_subject(function, causal, supports, name)
    start = time.perf_counter()
    found = tuple(results(subject, dtypes=dtypes, checks=chosen(only, skip, quick), seed=seed))
    return make_report(subject, found, seed, time.perf_counter() - start)


def make_subject(
    function: Function,
    causal: bool = False,
    supports: Iterable[str] | None = None,
    name: str | None = None,
) -> Subject:
    """The function with its claims; raises for features that do not exist, and for no function."""
    if not callable(function):
        kind = type(function).__name__
        raise TypeError(f"{name or 'function'} must be a function, and is of type {kind}")
    names = tuple([supports] if isinstance(supports, str) else supports or ())
    features = claimed(names, causal)
    return Subject(function, name or full_name(function), features, names, causal)


def make_report(
    subject: Subject, found: Sequence[Result], seed: int, seconds: float, interrupted: bool = False
) -> Report:
    """A report on results, with the versions under which they were measured."""
    versions = f"JAX {jax.__version__}, Python {platform.python_version()}, {jax.default_backend()}"
    names = (*subject.supports, *(("causal by itself",) if subject.causal else ()))
    return Report(subject.name, tuple(found), versions, names, seed, seconds, interrupted)


def results(
    subject: Subject, *, dtypes: Iterable[str], checks: Sequence[Check], seed: int = 0
) -> Iterator[Result]:
    """Every check in every dtype, one after the other, as they are measured.

    Checks that do not depend on precision run in the widest dtype only.
    """
    names = dtype_names(dtypes)
    able = [name for name in names if name in subject.features] or names
    widest = min(able, key=lambda name: UNIT_ROUNDOFF[name])
    for name in names:
        ready, given = prepare(subject, name, seed) if name in able else (subject, None)
        for check in checks:
            if check.once and name != widest:
                continue
            if given is None:
                row = Result(check.name, check.family, check.formula, name, "unsupported")
                yield replace(row, message=f"not claimed: {name}")
            else:
                yield execute(check, ready, given)


@dataclass(frozen=True)
class BoundCheck:
    """A check in one dtype, to be called with a function: raises if the property fails."""

    check: Check
    dtype: str
    causal: bool = False
    supports: tuple[str, ...] = ()
    seed: int = 0
    subjects: dict[int, Subject] = field(default_factory=dict, repr=False)  # programs, shared

    @property
    def name(self) -> str:
        """For a test's identity: check-dtype."""
        return f"{self.check.name}-{self.dtype}"

    def __call__(self, function: Function) -> None:
        """Measure; raise `AttentionError` where the property fails, nothing where unsupported."""
        fresh = make_subject(function, self.causal, self.supports)
        subject = self.subjects.setdefault(id(function), fresh)
        for result in results(subject, dtypes=(self.dtype,), checks=(self.check,), seed=self.seed):
            if result.status == "fail":
                raise AttentionError(f"{subject.name}\n\n{result.message}")


def attention_checks(
    *,
    causal: bool = False,
    supports: Iterable[str] | None = None,
    dtypes: Iterable[str] = DTYPES,
    only: Iterable[str] | str | None = None,
    skip: Iterable[str] | str = (),
    quick: bool = False,
    seed: int = 0,
) -> Iterator[BoundCheck]:
    """One callable a check and dtype, those that `supports` does not claim left out.

    >>> from jaxattn.verify import attention_checks, dense_attention
    >>> for check in attention_checks(only=("constant_value",)):
    ...     check(dense_attention)
    """
    names = tuple([supports] if isinstance(supports, str) else supports or ())
    features = claimed(names, causal)
    kinds = [name for name in dtype_names(dtypes) if name in features]
    widest = min(kinds, key=lambda name: UNIT_ROUNDOFF[name])
    subjects: dict[int, Subject] = {}
    for kind in kinds:
        for check in chosen(only, skip, quick):
            if set(check.needs) <= features and (kind == widest or not check.once):
                yield BoundCheck(check, kind, causal, names, seed, subjects)


def parametrize_with_attention_checks(functions: Sequence[Function], **options: Any) -> Any:
    """A pytest decorator: one test a function, check and dtype, with arguments (attention, check).

    Options are those of `attention_checks`.

        @parametrize_with_attention_checks([my_attention], supports=("lse",))
        def test_attention(attention, check):
            check(attention)
    """
    import pytest  # only test suites need it

    cases = [
        pytest.param(function, check, id=f"{full_name(function)}-{check.name}")
        for function in functions
        for check in attention_checks(**options)
    ]
    return pytest.mark.parametrize(("attention", "check"), cases)


def full_name(function: Function) -> str:
    """module:name where there is one, else the type's."""
    inner = getattr(function, "func", function)  # functools.partial
    name = getattr(inner, "__qualname__", type(inner).__name__)
    return f"{getattr(inner, '__module__', '?')}:{name}"


def dtype_names(dtypes: Iterable[str]) -> list[str]:
    """The names as a list; raises for those that are no dtype of ours."""
    names = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    unknown = [name for name in names if name not in UNIT_ROUNDOFF]
    if unknown or not names:
        raise ValueError(f"dtypes are names among {sorted(UNIT_ROUNDOFF)}, not {unknown or 'none'}")
    return names
