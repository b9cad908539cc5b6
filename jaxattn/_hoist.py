"""Functions with arrays in them, as pytrees whose leaves are these arrays.

A derivative rule must see every array that a user's function holds or closes over. Tracing the
function once finds them all; it is then a program (static) and its constants (leaves).
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

from jaxattn._typing import Array
from jaxattn.masks import Mask, Predicate
from jaxattn.masks._base import changed


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A traced function, equal to another where the same function left the same text.

    So calls that no `jit` surrounds are compiled once, although each of them traces anew. A text
    that does not say all, and a function in parts, are equal to nothing else.
    """

    jaxpr: Any
    text: str | None
    function: Any

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Program):
            return self is other
        same = self.function is other.function and self.text is not None
        return same and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Hoisted:
    """`function(*args)` for arguments of the shapes it was traced with."""

    constants: list[Array]
    program: Program = dataclasses.field(metadata={"static": True})

    def __call__(self, *args: Array) -> Array:
        """The program's one result."""
        closed = jax.extend.core.ClosedJaxpr(self.program.jaxpr, self.constants)
        (out,) = jax.extend.core.jaxpr_as_fun(closed)(*args)
        return out


def says_all(jaxpr: Any) -> bool:
    """Whether its text has no arrays of inner programs, derivative rules or callbacks behind it."""
    return all(
        shown(equation.params["jaxpr"])
        if equation.primitive.name in ("jit", "pjit")
        else all(map(shown, equation.params.values()))
        for equation in jaxpr.eqns
    )


def shown(value: Any) -> bool:
    """Whether the text of a program shows all of this parameter."""
    if isinstance(value, jax.extend.core.ClosedJaxpr):
        return not value.consts and says_all(value.jaxpr)
    if isinstance(value, jax.extend.core.Jaxpr):
        return says_all(value)
    if isinstance(value, tuple | list):
        return all(map(shown, value))
    return value is None or isinstance(value, int | float | str | enum.Enum | np.dtype)


def hoist(function: Callable[..., Any], *examples: jax.ShapeDtypeStruct) -> Hoisted:
    """Trace a function of arrays to one array."""
    closed = jax.make_jaxpr(lambda *args: jnp.asarray(function(*args)))(*examples)
    while isinstance(function, jax.tree_util.Partial) and not (function.args or function.keywords):
        function = function.func
    text = str(closed.jaxpr) if says_all(closed.jaxpr) else None
    program = Program(closed.jaxpr, text, function)
    return Hoisted([jnp.asarray(constant) for constant in closed.consts], program)


def hoist_mask(mask: Mask | None, *positions: jax.ShapeDtypeStruct) -> Mask | None:
    """The mask with every function in it hoisted."""

    def visit(part: Any) -> Any:
        if not is_predicate(part):
            return part
        return changed(part, function=hoist(part.function, *positions))

    def is_predicate(part: Any) -> bool:
        return isinstance(part, Predicate)

    return jax.tree_util.tree_map(visit, mask, is_leaf=is_predicate)
