"""What every mask is: a predicate on positions that composes, reads and draws itself."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

from jaxattn._typing import Array, Bool, Int
from jaxattn.masks._tiles import Blocks, Tiles, unknown

MaskClass = TypeVar("MaskClass", bound=type)
Part = TypeVar("Part")


@dataclass_transform(frozen_default=True)
def mask_class(
    *, leaves: tuple[str, ...] = (), static: tuple[str, ...] = ()
) -> Callable[[MaskClass], MaskClass]:
    """Make a class a frozen pytree dataclass: `leaves` are arrays, `static` is compiled in."""

    def decorate(cls: MaskClass) -> MaskClass:
        cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        return jax.tree_util.register_dataclass(cls, data_fields=leaves, meta_fields=static)

    return decorate


def changed(part: Part, **fields: Any) -> Part:
    """A copy of the same class with these fields; a constructor may take others."""
    copied = copy.copy(part)
    for name, field in fields.items():
        object.__setattr__(copied, name, field)
    return copied


def forget(cls: type, base: type, names: tuple[str, ...]) -> None:
    """Give cls the base's attributes where its own belong to another `__call__` than it has."""

    def place(name: str) -> int:
        return next(i for i, parent in enumerate(cls.__mro__) if name in vars(parent))

    for name in names:
        if place(name) > place("__call__"):
            setattr(cls, name, vars(base)[name])


class Mask:
    """A boolean function of query and key positions. See `jaxattn.masks`."""

    reflexive = False
    """Whether every token is known to attend to itself, so that none of T = S is padding."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with another `__call__` says anew what is known of it, or nothing is."""
        super().__init_subclass__(**options)
        forget(cls, Mask, ("tiles", "reflexive", "example"))

    def __call__(
        self, query_positions: Int[Array, "*B T 1"], key_positions: Int[Array, "*B 1 S"]
    ) -> Bool[Array, "*B T S"]:
        """True where the query at that position may attend to the key at that position."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Which tiles are empty, mixed or full; may call a tile mixed that is not."""
        return unknown(queries, keys)

    def children(self) -> tuple["Mask", ...]:
        """The masks that this one is composed of."""
        return ()

    def example(self, index: Any, batch: tuple[int, ...]) -> "Mask":
        """The mask of one example, `index` of the flattened `*B`; its arrays lose their `*B`."""
        return self

    def check(self, batch: tuple[int, ...], queries: int | None, keys: int | None) -> None:
        """Raise unless arrays inside fit `*B` and cover all positions below `queries`, `keys`.

        None stands for positions that are not known before the program runs.
        """
        for child in self.children():
            child.check(batch, queries, keys)

    def dense(self, queries: int, keys: int | None = None) -> Bool[Array, "*B T S"]:
        """The mask as an array, for T queries and S keys at their default positions.

        Args:
          queries: T.
          keys: S; default T.

        Returns:
          boolean `[T, S]`, with `*B` and head axes in front where the mask holds such arrays.

        Raises:
          ValueError: T ≠ S, and a mask of order in it says no `align`.
        """
        keys = queries if keys is None else keys
        offset = alignment_offset(self, queries, keys)
        query_positions = jnp.arange(queries, dtype=jnp.int32)[:, None] + offset
        key_positions = jnp.arange(keys, dtype=jnp.int32)[None, :]
        allowed = self(query_positions, key_positions)
        allowed = jnp.broadcast_to(allowed, (*allowed.shape[:-2], queries, keys))
        return allowed & jnp.broadcast_to(query_positions >= 0, allowed.shape)

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, _as_mask(other, "&"))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, _as_mask(other, "|"))

    def __rand__(self, other: Any) -> "Mask":
        return And(_as_mask(other, "&"), self)

    def __ror__(self, other: Any) -> "Mask":
        return Or(_as_mask(other, "|"), self)

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the mask {self!r} is neither true nor false: write &, | and ~ between masks instead "
            "of and, or and not; whether there is one says `mask is not None`"
        )

    def __repr__(self) -> str:
        return describe(self)


@mask_class(leaves=("left", "right"))
class And(Mask):
    """Both allow: `left & right`."""

    left: Mask
    right: Mask

    @property
    def reflexive(self) -> bool:
        """Where both sides are."""
        return self.left.reflexive and self.right.reflexive

    def example(self, index: Any, batch: tuple[int, ...]) -> Mask:
        """Both sides for one example."""
        left, right = (side.example(index, batch) for side in self.children())
        return changed(self, left=left, right=right)

    def children(self) -> tuple[Mask, ...]:
        """Both sides."""
        return (self.left, self.right)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """True where both sides are."""
        left, right = both(self, query_positions, key_positions)
        return left & right

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Possible where both are, certain where both are."""
        left, right = self.left.tiles(queries, keys), self.right.tiles(queries, keys)
        return Tiles(left.possible & right.possible, left.certain & right.certain)

    def __repr__(self) -> str:
        return " & ".join(f"({m!r})" if isinstance(m, Or) else repr(m) for m in self.children())


@mask_class(leaves=("left", "right"))
class Or(Mask):
    """One allows: `left | right`."""

    left: Mask
    right: Mask

    @property
    def reflexive(self) -> bool:
        """Where one side is."""
        return self.left.reflexive or self.right.reflexive

    def example(self, index: Any, batch: tuple[int, ...]) -> Mask:
        """Both sides for one example."""
        left, right = (side.example(index, batch) for side in self.children())
        return changed(self, left=left, right=right)

    def children(self) -> tuple[Mask, ...]:
        """Both sides."""
        return (self.left, self.right)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """True where one side is."""
        left, right = both(self, query_positions, key_positions)
        return left | right

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Possible where one is, certain where one is."""
        left, right = self.left.tiles(queries, keys), self.right.tiles(queries, keys)
        return Tiles(left.possible | right.possible, left.certain | right.certain)

    def __repr__(self) -> str:
        return f"{self.left!r} | {self.right!r}"


@mask_class(leaves=("inner",))
class Not(Mask):
    """The other pairs: `~inner`. Positions below 0 stay out all the same."""

    inner: Mask

    def example(self, index: Any, batch: tuple[int, ...]) -> Mask:
        """The inner mask for one example."""
        return changed(self, inner=self.inner.example(index, batch))

    def children(self) -> tuple[Mask, ...]:
        """The mask that is turned around."""
        return (self.inner,)

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """True where the inner mask is not."""
        return ~self.inner(query_positions, key_positions)

    def tiles(self, queries: Blocks, keys: Blocks) -> Tiles:
        """Possible where the inner is not certain, certain where it is not possible."""
        inner = self.inner.tiles(queries, keys)
        return Tiles(~inner.certain, ~inner.possible)

    def __repr__(self) -> str:
        return f"~({self.inner!r})" if isinstance(self.inner, And | Or) else f"~{self.inner!r}"


def both(mask: And | Or, query_positions: Any, key_positions: Any) -> tuple[Array, Array]:
    """Both sides at these positions, with one number of axes."""
    left = mask.left(query_positions, key_positions)
    right = mask.right(query_positions, key_positions)
    rank = max(left.ndim, right.ndim)
    return with_rank(left, rank), with_rank(right, rank)


def with_rank(x: Array, rank: int) -> Array:
    """x with axes of 1 in front, `rank` in all."""
    return jnp.expand_dims(x, tuple(range(rank - x.ndim)))


def walk(mask: Mask) -> Iterator[Mask]:
    """The mask and all masks inside it."""
    yield mask
    for child in mask.children():
        yield from walk(child)


def alignment_offset(mask: Mask | None, queries: int, keys: int) -> int:
    """Where the first of T queries stands, counted from the first of S keys: 0 or S - T.

    Raises a ValueError where T ≠ S, order matters, and no mask says how it is meant.
    """
    parts = [m for m in walk(mask) if hasattr(m, "align")] if mask is not None else []
    chosen = {part.align for part in parts} - {None}  # pyright: ignore[reportAttributeAccessIssue]
    if len(chosen) > 1:
        raise ValueError(
            f"masks in one call must share one alignment, got {mask!r}; give the same align to "
            "each, or pass query_positions and key_positions"
        )
    if parts and not chosen and queries != keys:
        raise ValueError(
            f"{parts[0]!r} compares positions, and T = {queries} queries against S = {keys} keys "
            'can be aligned in two ways: align="start" puts query i at position i; align="end" '
            "puts the last query at the last key (decoding with a cache). Choose one, or pass "
            "query_positions and key_positions"
        )
    return keys - queries if chosen == {"end"} else 0


def _as_mask(other: Any, operator: str) -> Mask:
    if isinstance(other, Mask):
        return other
    raise TypeError(
        f"a mask composes with masks, got {type(other).__name__} beside {operator}; wrap a "
        "boolean array [T, S] as jaxattn.masks.Dense(array), a function of positions as "
        "jaxattn.masks.Predicate(function)"
    )


def describe(x: Any) -> str:
    """The name of a dataclass, with its fields that are not at their defaults."""
    values = ((field, getattr(x, field.name)) for field in dataclasses.fields(x))
    shown = (f"{f.name}={_show(v)}" for f, v in values if not _is_default(v, f.default))
    return f"{type(x).__name__}({', '.join(shown)})"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | str | tuple) and value == default)


def _show(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype") and value.shape:
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return str(value) if hasattr(value, "dtype") else repr(value)
