"""Fair clocks: everybody warms up, then all take turns, and the medians count.

Times are wall seconds. Turns are interleaved, so that what else the machine does falls on all;
each turn begins with as many calls that are not timed, while threads of the one before stop
spinning.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxattn.bench.cases import Case
from jaxattn.bench.contestants import Contestant, LeftOut

SHORTEST = 0.02  # seconds a turn lasts at least, so that the clock's own cost does not show


class Timing(NamedTuple):
    """One contestant in one case: all in seconds, or why it was left out."""

    contestant: str
    median: float | None
    fastest: float | None
    compile: float | None
    turns: int
    reason: str | None = None


class Ready(NamedTuple):
    """A compiled and warmed call, how long it took to get there, and calls a turn."""

    name: str
    call: Callable[[], Any]
    compile: float
    calls: int


def race(
    contestants: Sequence[Contestant], case: Case, mode: str, repeats: int, budget: float
) -> list[Timing]:
    """Time all contestants in one case; at least 3 turns each, then until `budget` seconds."""
    ready: list[Ready] = []
    left_out: list[Timing] = []
    for contestant in contestants:
        try:
            ready.append(warm(contestant, case, mode))
        except LeftOut as reason:
            left_out.append(Timing(contestant.name, None, None, None, 0, str(reason)))
    found: dict[str, list[float]] = {entry.name: [] for entry in ready}
    start = time.perf_counter()
    for turn in range(repeats):
        if turn >= 3 and time.perf_counter() - start > budget:
            break
        for entry in ready:
            found[entry.name].append(one_turn(entry.call, entry.calls))
    return [summary(entry, found[entry.name]) for entry in ready] + left_out


def warm(contestant: Contestant, case: Case, mode: str) -> Ready:
    """Compile, run twice, and choose how many calls make a turn."""
    start = time.perf_counter()
    call = contestant.prepare(case, mode)
    compiled = time.perf_counter() - start
    once = one_turn(call, 1)
    return Ready(contestant.name, call, compiled, max(1, round(SHORTEST / max(once, 1e-6))))


def one_turn(call: Callable[[], Any], calls: int) -> float:
    """Seconds of one call."""
    for _ in range(calls):
        call()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def summary(entry: Ready, seconds: list[float]) -> Timing:
    """The median and the fastest turn."""
    return Timing(entry.name, statistics.median(seconds), min(seconds), entry.compile, len(seconds))


def matmul_rate(size: int = 2048, repeats: int = 7) -> float:
    """XLA's own rate of products of `size`² matrices in float32, FLOP/s: the ceiling."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(x, x))
    turns = [one_turn(lambda: jax.block_until_ready(product(x, x)), 1) for _ in range(repeats)]
    return 2.0 * size**3 / statistics.median(turns)
