"""Name maps: which array of another library is which parameter of ours, as a table of text."""

from collections.abc import Mapping
from typing import NamedTuple

from jaxattn.interop import _axes
from jaxattn.interop._axes import Axes


class Row(NamedTuple):
    """One line of a table: their array, our parameters, and their axes (None: the same array).

    Several parameters of ours are the parts P of one array, which is the first of our axes.
    """

    theirs: str
    ours: tuple[str, ...]
    axes: Axes | None


class Names(NamedTuple):
    """A name map, made by `names`: see there."""

    rows: tuple[Row, ...]
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    tied: tuple[tuple[str, str], ...] = ()

    def theirs(self, name: str, prefix: str | None = None) -> str:
        """A row's name as it stands in a tree: with the prefix, unless it begins with `/`."""
        prefix = self.prefix if prefix is None else prefix
        return name[1:] if name.startswith("/") else prefix + name


def names(
    table: str,
    *,
    prefix: str = "",
    ignored: tuple[str, ...] = (),
    tied: Mapping[str, str] | None = None,
) -> Names:
    """A name map from a table: a line for each array of theirs.

    A line has their name, ours, and, where the arrays differ, their axes and ours:

        h.*.attn.c_attn.weight   blocks.*.attention.{query,key,value}.kernel   D (P N H) -> P D N H

    `*` is the number of a layer. `{a,b}` are several parameters of ours, the parts P of one array.
    Brackets join axes into one, the last letter running fastest; `1` is an axis of size 1 that
    we do not have.

    Args:
      table: the lines.
      prefix: stands before all their names but those that begin with `/`.
      ignored: their arrays that are no weights (masks, counters), with `*` for anything.
      tied: their names that may repeat another one: where ours has no parameter for it, both
        must be equal.

    Returns:
      the map, for `load` and `save`.

    Raises:
      ValueError: a line does not read like this.

    Example:
      >>> from jaxattn.interop import names
      >>> linear = names('''
      ...     weight   kernel   F D -> D F
      ...     bias     bias
      ... ''')
      >>> [row.theirs for row in linear.rows]
      ['weight', 'bias']
    """
    rows = tuple(_row(line) for line in table.splitlines() if line.strip())
    return Names(rows, prefix, ignored, tuple((tied or {}).items()))


def within(table: str, theirs: str, ours: str) -> str:
    """The lines of a table with a prefix before their names and one before ours.

    Args:
      table: the lines, as in `names`.
      theirs: for example `encoder.layer.*.`.
      ours: for example `encoder.blocks.*.`.

    Returns:
      a table.

    Example:
      >>> from jaxattn.interop import within
      >>> within("weight kernel F D -> D F", "fc1.", "hidden.")
      'fc1.weight hidden.kernel F D -> D F'
    """
    lines = [line.split(maxsplit=1) for line in table.splitlines() if line.strip()]
    return "\n".join(f"{theirs}{name} {ours}{rest}" for name, rest in lines)


def _row(line: str) -> Row:
    name, *rest = line.split(maxsplit=2)
    if not rest:
        raise ValueError(f"a line must be `theirs ours [axes]`, got {line.strip()!r}")
    ours = _parts(rest[0])
    axes = _axes.parsed(rest[1]) if len(rest) > 1 else None
    if len(ours) > 1 and (axes is None or axes.ours[0] != ("P",)):
        raise ValueError(f"the parts of an array need axes `... -> P ...`, got {line.strip()!r}")
    return Row(name, ours, axes)


def _parts(name: str) -> tuple[str, ...]:
    """`a.{b,c}.d` as (`a.b.d`, `a.c.d`)."""
    if "{" not in name:
        return (name,)
    before, rest = name.split("{")
    inside, after = rest.split("}")
    return tuple(f"{before}{part}{after}" for part in inside.split(","))
