"""Functions with arrays in them, as pytrees whose leaves are these arrays.

A derivative rule must see every array that a user's function holds or closes over. Tracing the
function once finds them all; it is then a program (static) and its constants (leaves).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp

from jaxattn._typing import Array
from jaxattn.masks import Mask, Predicate
from jaxattn.masks._base import changed


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A traced function, equal to another where the same function left the same text.

    So calls that no `jit` surrounds are compiled once, although each of them traces anew.
    """

    jaxpr: Any
    text: str
    tree: Any  # a PyTreeDef
    parts: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program) or len(self.parts) != len(other.parts):
            return False
        same = all(a is b for a, b in zip(self.parts, other.parts, strict=True))
        return same and (self.text, self.tree) == (other.text, other.tree)

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


def hoist(function: Callable[..., Any], *examples: jax.ShapeDtypeStruct) -> Hoisted:
    """Trace a function of arrays to one array."""
    closed = jax.make_jaxpr(lambda *args: jnp.asarray(function(*args)))(*examples)
    parts, tree = jax.tree.flatten(function)
    known = tuple(part for part in parts if not hasattr(part, "dtype"))
    program = Program(closed.jaxpr, str(closed.jaxpr), tree, known)
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
