"""`explain`: which implementation would run, why the others would not, and what it would cost.

Letters: see `jaxattn._typing`.
"""

import inspect
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import _door
from jaxattn._door import Inputs
from jaxattn._precision import accumulator
from jaxattn.dispatch import IMPLEMENTATIONS, Implementation, attention, choose
from jaxattn.masks._tiles import Tiles
from jaxattn.plan import default_plan
from jaxattn.tiles import FULL, MIXED, Plan, classify, position_blocks, visits

SIGNATURE = inspect.signature(attention)


class TileCount(NamedTuple):
    """Tiles of all examples (one for all where the mask is the same), of `rows` by `columns`."""

    rows: int
    columns: int
    empty: int
    mixed: int
    full: int

    @property
    def active(self) -> float:
        """Share of tiles that are computed."""
        return (self.mixed + self.full) / (self.empty + self.mixed + self.full)


class Verdict(NamedTuple):
    """One implementation: whether it runs, why not, and the cost of its value (no derivative).

    `flops` counts both matrix products over the pairs that are computed; `bytes` are operands,
    results and temporaries. None where the sizes or tiles are known at run time only.
    """

    name: str
    runs: bool
    reason: str
    flops: float | None
    bytes: float | None


class Explanation(NamedTuple):
    """What `attention` would do with the same arguments; prints as a table."""

    platform: str
    sizes: dict[str, Any]
    tiles: TileCount | None
    verdicts: tuple[Verdict, ...]

    @property
    def implementation(self) -> str | None:
        """The name of the implementation that would run; None if none can."""
        return next((verdict.name for verdict in self.verdicts if verdict.runs), None)

    def __str__(self) -> str:
        """A table with a line for each implementation, and one for the tiles."""
        sizes = ", ".join(f"{letter} = {size}" for letter, size in self.sizes.items())
        lines = [f"attention on {self.platform}: {sizes}"]
        lines += [
            f"  {'->' if verdict.runs else '  '} {verdict.name:<10} "
            f"{amount(verdict.flops, 'FLOP'):>12} {amount(verdict.bytes, 'B'):>10}  "
            f"{verdict.reason}"
            for verdict in self.verdicts
        ]
        return "\n".join([*lines, f"     {tiles_in_words(self.tiles)}"])


def explain(*arguments: Any, **options: Any) -> Explanation:
    """Which implementation would run for these arguments of `attention`; why not each other.

    Nothing is computed but the classes of tiles. Under `jit` or `jax.eval_shape` it explains the
    program: tiles that depend on traced arrays are then known at run time only.

    Args: as in `attention`.

    Returns:
      An `Explanation`: `implementation`, `verdicts` with reasons, estimated FLOP and bytes of the
      value, and `tiles`: how many are empty (skipped), mixed (masked) and full.

    Raises: as in `attention`, except that an implementation which refuses is told, not raised.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import explain
      >>> from jaxattn.masks import Causal
      >>> x = jnp.ones((4096, 8, 64), jnp.float32)
      >>> found = explain(x, x, x, mask=Causal())
      >>> found.implementation, found.tiles.empty > found.tiles.mixed
      ('blockwise', True)

    Source: the table `IMPLEMENTATIONS` in dispatch.py.
    """
    given = SIGNATURE.bind(*arguments, **options)
    given.apply_defaults()
    asked = dict(given.arguments)
    name, sink = asked.pop("implementation"), asked.pop("sink")
    inputs = _door.enter(**asked)
    if name not in (None, *(entry.name for entry in IMPLEMENTATIONS)):
        choose(inputs, name)  # raises, with the names that there are
    if sink is not None:
        _door.sink(sink, inputs.sizes[2], accumulator(inputs.query.dtype))
    tiles = count_tiles(inputs)
    queries, keys, heads, key_heads = inputs.sizes
    sizes = {"*B": list(inputs.batch), "T": queries, "S": keys, "N": heads, "K": key_heads}
    sizes |= {"H": inputs.query.shape[-1], "Hv": inputs.value.shape[-1]}
    sizes["dtype"] = inputs.query.dtype.name
    verdicts = tuple(verdict(entry, inputs, name, tiles) for entry in IMPLEMENTATIONS)
    return Explanation(jax.default_backend(), sizes, tiles, verdicts)


explain.__signature__ = SIGNATURE.replace(return_annotation=Explanation)  # type: ignore[attr-defined]


def verdict(
    entry: Implementation, inputs: Inputs, asked: str | None, tiles: TileCount | None
) -> Verdict:
    """What becomes of one implementation when `asked` is the name given, or None."""
    name = entry.name
    refusal, declined = entry.refusal(inputs), entry.declines(inputs)
    try:
        runs = choose(inputs, asked).name == name
    except ValueError:
        runs = False
    if refusal is not None:
        reason = f"cannot: {refusal}"
    elif runs:
        reason = "named" if asked is not None else "the first that accepts and suits"
    elif asked is not None:
        reason = f"implementation={asked!r} is asked for"
    else:
        reason = declined or "an earlier one suits"
    return Verdict(name, runs, reason, *cost(name, inputs, tiles))


def cost(name: str, inputs: Inputs, tiles: TileCount | None) -> tuple[float | None, float | None]:
    """FLOP of both products, and bytes of operands, result and temporaries."""
    queries, keys, heads, _ = inputs.sizes
    if not (isinstance(queries, int) and isinstance(keys, int)):
        return None, None
    examples = math.prod(inputs.batch)
    pairs = examples * heads * queries * keys
    width = inputs.query.shape[-1] + inputs.value.shape[-1]
    operands = (inputs.query, inputs.key, inputs.value)
    rows = examples * heads * queries * inputs.value.shape[-1]
    moved = sum(x.size * x.dtype.itemsize for x in operands) + rows * inputs.query.dtype.itemsize
    wide = jnp.dtype(accumulator(inputs.query.dtype)).itemsize
    if name == "dense":
        return 2.0 * pairs * width, float(moved + 2 * pairs * wide)
    if tiles is None:
        return None, float(moved)
    computed = 2.0 * pairs * width * tiles.active
    return computed, float(moved + 2 * tiles.rows * tiles.columns * wide)


def count_tiles(inputs: Inputs) -> TileCount | None:
    """How blockwise would class its tiles; None where that is known at run time only."""
    queries, keys, *_ = inputs.sizes
    if 0 in (*inputs.batch, queries, keys):
        return None
    if not (isinstance(queries, int) and isinstance(keys, int)):
        return None
    plan: Plan = default_plan(inputs)
    rank = len(inputs.batch)
    rows = position_blocks(inputs.query_positions, queries, inputs.query_offset, plan.rows, rank)
    columns = position_blocks(inputs.key_positions, keys, 0, plan.columns, rank)
    tiles = classify(inputs, rows, columns)
    try:
        possible, certain = (np.asarray(x) for x in tiles)
    except jax.errors.TracerArrayConversionError:
        return None
    found = visits(Tiles(possible, certain), plan.looped)
    mixed, full = (int((found.kind == kind).sum()) for kind in (MIXED, FULL))
    empty = found.kind.shape[0] * found.kind.shape[1] * found.count - mixed - full
    return TileCount(plan.rows, plan.columns, empty, mixed, full)


def amount(x: float | None, unit: str) -> str:
    """A number with a prefix, as in 4.3 GFLOP."""
    if x is None:
        return f"? {unit}"
    for prefix in ("", "k", "M", "G", "T"):
        if x < 1000 or prefix == "T":
            return f"{x:.3g} {prefix}{unit}"
        x /= 1000
    raise AssertionError("unreachable")


def tiles_in_words(tiles: TileCount | None) -> str:
    """One line on the tiles."""
    if tiles is None:
        return "tiles: classed at run time"
    return (
        f"tiles of {tiles.rows} x {tiles.columns}: {tiles.empty} empty, {tiles.mixed} mixed, "
        f"{tiles.full} full ({100 * tiles.active:.3g}% computed)"
    )
