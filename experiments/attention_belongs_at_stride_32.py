"""In a detector attention belongs at stride 32: at stride 8 it has 256 times the pairs.

A 640 × 640 image has 400 places at stride 32, and 160,000 pairs of them; at stride 8 it has 6,400,
and 41 million. YOLO11 attends in C2PSA and C3k2, both where the stride is 32. Here
`jaxattn.grid_cost` counts, and compiled programs tell what they take: temporary memory of dense
attention follows the pairs; tiled attention needs the memory of tokens, and still the time of
pairs. Both blocks run with the implementation that jaxattn chooses.

Command: python -m experiments attention_belongs_at_stride_32
Minutes: 1
Expected: 400 tokens and 160,000 pairs, 6,400 and 40,960,000. Dense attention takes 2.4 MiB at
stride 32 and 625 at stride 8 (256 times), tiled 1.7 and 11. Times are claimed only where they are
far apart: on two busy cores 2 ms and 2 s dense, 1.4 and 290 ms tiled, 12 and 490 ms for C2PSA
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import nnx
from rich.console import Console
from rich.table import Table

from experiments import figures
from experiments.report import Claim, Result
from jaxattn import GridCost, attention, grid_cost
from jaxattn.nn import C2PSA, C3k2

IMAGE, QUICK_IMAGE = 640, 320
STRIDES = (32, 16, 8)
CHANNELS, HEADS, KEY, VALUE = 256, 2, 32, 64  # C2PSA attends with half of its channels
MIB = 2**20
REPEATS = 3


class Cost(NamedTuple):
    """Of one compiled program."""

    mebibytes: float
    milliseconds: float


def run(out: Path, quick: bool) -> Result:
    """Count, compile and time at three strides."""
    image = QUICK_IMAGE if quick else IMAGE
    counts = {stride: grid_cost(image, image, stride) for stride in STRIDES}
    found = {
        name: {stride: measured(*make(image // stride)) for stride in STRIDES}
        for name, make in PROGRAMS.items()
    }
    show(counts, found)
    return Result(
        claims=[*counted(), *judged(counts, found)],
        numbers={
            "image": image,
            "tokens": {stride: cost.tokens for stride, cost in counts.items()},
            "pairs": {stride: cost.pairs for stride, cost in counts.items()},
            "temporary MiB": {n: rounded(costs, "mebibytes") for n, costs in found.items()},
            "milliseconds": {n: rounded(costs, "milliseconds") for n, costs in found.items()},
        },
        figures=[draw(out, counts, found)],
    )


def rounded(costs: dict[int, Cost], name: str) -> dict[int, float]:
    """One number of each stride's cost, to hundredths."""
    return {stride: round(getattr(cost, name), 2) for stride, cost in costs.items()}


Program = tuple[Callable[..., jax.Array], tuple[Any, ...]]


def attended(implementation: str, side: int) -> Program:
    """The attention inside C2PSA on a map of this side."""
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = (KEY, KEY, VALUE)
    heads = [
        jax.random.normal(key, (1, side * side, HEADS, size))
        for key, size in zip(keys, sizes, strict=True)
    ]
    return functools.partial(attention, implementation=implementation), tuple(heads)


def block(make: Callable[[nnx.Rngs], nnx.Module], side: int) -> Program:
    """A whole block on a map of this side, as it runs in a trained detector."""
    module = nnx.jit(lambda: make(nnx.Rngs(0)))()
    module.eval()
    graph, state = nnx.split(module)
    picture = jax.random.normal(jax.random.key(1), (1, side, side, CHANNELS))
    return lambda state, x: nnx.merge(graph, state)(x), (state, picture)


PROGRAMS: dict[str, Callable[[int], Program]] = {
    "attention, dense": functools.partial(attended, "dense"),
    "attention, tiled": functools.partial(attended, "blockwise"),
    "C2PSA": functools.partial(block, lambda rngs: C2PSA(CHANNELS, rngs=rngs)),
    "C3k2 with attention": functools.partial(
        block, lambda rngs: C3k2(CHANNELS, CHANNELS, attention=True, rngs=rngs)
    ),
    "C3k2, convolutions only": functools.partial(
        block, lambda rngs: C3k2(CHANNELS, CHANNELS, rngs=rngs)
    ),
}


def measured(function: Callable[..., jax.Array], given: tuple[Any, ...]) -> Cost:
    """Temporary memory that the compiled program takes, and its best time."""
    program: Any = jax.jit(function).lower(*given).compile()
    jax.block_until_ready(program(*given))
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(program(*given))
        seconds.append(time.perf_counter() - began)
    return Cost(program.memory_analysis().temp_size_in_bytes / MIB, 1e3 * min(seconds))


def counted() -> list[Claim]:
    """The counts of a 640 × 640 image."""
    expected = {32: GridCost(400, 160_000), 8: GridCost(6_400, 40_960_000)}
    return [
        Claim(
            claim=f"tokens and pairs of a 640 × 640 image at stride {stride}",
            expected=f"{cost.tokens:,} and {cost.pairs:,}",
            measured=list(grid_cost(IMAGE, IMAGE, stride)),
            holds=grid_cost(IMAGE, IMAGE, stride) == cost,
        )
        for stride, cost in expected.items()
    ]


def judged(counts: dict[int, GridCost], found: dict[str, dict[int, Cost]]) -> list[Claim]:
    """Memory at stride 8 over that at stride 32 follows pairs, or tokens; time is always more."""
    dense, tiled = (
        found[name][8].mebibytes / max(found[name][32].mebibytes, 1e-3)
        for name in ("attention, dense", "attention, tiled")
    )
    pairs = counts[8].pairs / counts[32].pairs
    slow = found["attention, dense"][8].milliseconds / found["attention, dense"][32].milliseconds
    tokens = counts[8].tokens / counts[32].tokens
    return [
        Claim(
            claim="dense attention, temporary memory at stride 8 over that at stride 32",
            expected=f"above {pairs / 2:g}: pairs are {pairs:g} times as many",
            measured=dense,
            holds=dense > pairs / 2,
        ),
        Claim(
            claim="tiled attention, temporary memory at stride 8 over that at stride 32",
            expected=f"below {4 * tokens:g}: tokens are {tokens:g} times as many",
            measured=tiled,
            holds=tiled < 4 * tokens,
        ),
        Claim(
            claim="dense attention, time at stride 8 over that at stride 32",
            expected=f"above {2 * tokens:g}: more than tokens explain",
            measured=slow,
            holds=slow > 2 * tokens,
        ),
    ]


def show(counts: dict[int, GridCost], found: dict[str, dict[int, Cost]]) -> None:
    """The table of costs."""
    table = Table("", *(f"stride {stride}" for stride in STRIDES))
    table.add_row("tokens", *(f"{counts[stride].tokens:,}" for stride in STRIDES))
    table.add_row("pairs", *(f"{counts[stride].pairs:,}" for stride in STRIDES))
    for name, costs in found.items():
        cells = (f"{c.milliseconds:.1f} ms, {c.mebibytes:.1f} MiB" for c in costs.values())
        table.add_row(name, *cells)
    Console().print(table)


def draw(out: Path, counts: dict[int, GridCost], found: dict[str, dict[int, Cost]]) -> Path:
    """Memory and time over tokens, with lines that grow as tokens and as pairs."""
    made, ((left, right),) = figures.figure(columns=2)
    tokens = [counts[stride].tokens for stride in STRIDES]
    colours = (figures.VERMILION, figures.BLUE, figures.ORANGE, figures.PURPLE, figures.GREEN)
    for (name, costs), colour in zip(found.items(), colours, strict=True):
        left.plot(tokens, [max(c.mebibytes, 0.1) for c in costs.values()], "o-", color=colour)
        times = [c.milliseconds for c in costs.values()]
        right.plot(tokens, times, "o-", color=colour, label=name)
    for ax, name in ((left, "temporary memory, MiB"), (right, "milliseconds")):
        ax.set(xscale="log", yscale="log", ylabel=name)
        ax.set_xticks(tokens, [f"{n:,}\nstride {s}" for n, s in zip(tokens, STRIDES, strict=True)])
        ax.minorticks_off()
    right.legend(frameon=False, fontsize=7)
    left.set_title("Places of the feature map, and memory")
    right.set_title("and time")
    return figures.save(made, out, "strides")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
