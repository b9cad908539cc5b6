"""The function under test, bound to a mask, compiled once an operation and shared by all checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .compiling import compiled
from .problem import Array, Problem


class WrongResult(Exception):
    """The function under test returned something that is not an attention's result."""


@dataclass(frozen=True)
class Subject:
    """`function`, and how it may be called: `features` is what follows from `supports`.

    `compiled` holds one program an operation, and is shared by copies. `command` is the command
    line that the function was named on, if it was.
    """

    function: Callable[..., Any]
    name: str
    features: frozenset[str]
    supports: tuple[str, ...] = ()
    causal: bool = False
    jit: bool = True
    traced_mask: bool = True
    command: str = ""
    compiled: dict[Any, Callable[..., Any]] = field(default_factory=dict, repr=False)

    @property
    def masking(self) -> str:
        """How it learns who may attend to whom; see `Problem`."""
        if "mask" in self.features:
            return "argument"
        return "causal" if self.causal else "none"


def attend_under(
    subject: Subject, mask: Array, lse: bool = False, fourth: str | None = None
) -> Callable[..., Any]:
    """The function as (query, key, value) -> out under a mask, its result's shape checked.

    With `lse` it returns (out, lse); with `fourth` ("bias" or "scale") it takes that one too.
    """

    def attend(query: Array, key: Array, value: Array, *more: Array) -> Any:
        keywords: dict[str, Any] = {"mask": mask} if "mask" in subject.features else {}
        if fourth is not None:
            keywords[fourth] = more[0]
        if lse:
            keywords["returns_lse"] = True
        result = subject.function(query, key, value, **keywords)
        _check_result(result, query, value, lse)
        return result

    return attend


def run(
    subject: Subject,
    operation: Callable[..., Any],
    *arrays: Any,
    mask: Array,
    lse: bool = False,
    fourth: str | None = None,
) -> Any:
    """operation(attend, *arrays) with attend under the mask; compiled, and as NumPy arrays.

    The mask is an argument of the compiled program, so that one program serves every mask; for
    functions that need to know it beforehand it is a constant.
    """
    mask = np.asarray(mask, bool)
    if not subject.jit:
        attend = attend_under(subject, jnp.asarray(mask), lse, fourth)
        return jax.tree.map(np.asarray, operation(attend, *jax.tree.map(jnp.asarray, arrays)))
    constant = not subject.traced_mask
    name = (operation, lse, fourth, jax.config.jax_enable_x64, mask.tobytes() if constant else b"")  # pyright: ignore[reportAttributeAccessIssue]
    if name not in subject.compiled:

        def program(traced: Array, *arrays: Any) -> Any:
            chosen = jnp.asarray(mask) if constant else traced
            return operation(attend_under(subject, chosen, lse, fourth), *arrays)

        subject.compiled[name] = compiled(program)
    return jax.tree.map(np.asarray, subject.compiled[name](jnp.asarray(mask), *arrays))


def run_on(subject: Subject, operation: Callable[..., Any], given: Problem, *arrays: Any) -> Any:
    """`run` at a problem's own inputs and mask: operation(attend, (query, key, value), ...)."""
    return run(subject, operation, given.x, *arrays, mask=given.mask)


def _check_result(result: Any, query: Array, value: Array, lse: bool) -> None:
    """Shapes alone: dtypes have a check of their own, and values are what all others look at."""
    out_shape = (*query.shape[:-1], value.shape[-1])
    wanted = {"out": out_shape, "lse": query.shape[:-1]} if lse else {"out": out_shape}
    parts = result if lse else (result,)
    if not isinstance(parts, tuple) or len(parts) != len(wanted):
        raise WrongResult(f"returned {_describe(result)} where (out, lse) was expected")
    for (name, shape), part in zip(wanted.items(), parts, strict=True):
        if not hasattr(part, "shape") or not hasattr(part, "dtype"):
            raise WrongResult(f"returned {_describe(part)} where an array {shape} was expected")
        if tuple(part.shape) != tuple(shape):
            raise WrongResult(f"{name} has shape {tuple(part.shape)} where {shape} was expected")


def _describe(thing: Any) -> str:
    shape = getattr(thing, "shape", None)
    return f"{type(thing).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")
