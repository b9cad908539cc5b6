"""Linear attention's time grows as T, up to 65,536 tokens; dense attention's as T².

    linear_attention: φ(Q) (φ(K)ᵀ V), one head of 32 features, float32

over all tokens, causal, and the causal gradient in query, key and value. The shortest of many runs
counts, lengths in turn, so that a busy minute hits all of them and a quiet moment is enough. The
slope of log time over log T is fitted from T = 4096 on: below, starting a program takes as long as
its work. What fits into a cache at 4096 does not at 65,536, so that the slope may be a little
above 1.

Command: python -m experiments linear_attention_takes_linear_time
Minutes: 1
Expected: slopes from 0.8 to 1.3, where time ∝ T is 1 (1.02 over all tokens, 1.13 causal, 1.11 its
gradient; on an older machine with other programs on both cores 1.24, 1.29 and 1.26); dense at
least 1.6, where T² is 2 (2.4: pairs of 8192 tokens fit into no cache).
Tried before: 9 runs, which four programs for each core disturb (1.2 to 1.6); and processor time,
which one system counted in ticks longer than the runs
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import figures
from experiments.report import Claim, Result
from jaxattn import attention, linear_attention
from jaxattn.masks import Causal

FEATURES = 32
FITTED_FROM = 4096
LINEAR, DENSE = (0.8, 1.3), 1.6


class Sizes(NamedTuple):
    """Lengths, and how often each is run."""

    linear: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
    dense: tuple[int, ...] = (1024, 2048, 4096, 8192)
    rounds: int = 40


QUICK = Sizes(linear=(1024, 4096, 8192, 16384), dense=(1024, 2048, 4096), rounds=20)


def run(out: Path, quick: bool) -> Result:
    """Time everything at all lengths."""
    sizes = QUICK if quick else Sizes()
    found = {
        name: measured(function, sizes.dense if name == "dense" else sizes.linear, sizes.rounds)
        for name, function in functions().items()
    }
    slopes = {name: slope(times) for name, times in found.items()}
    return Result(
        claims=claims(slopes, found),
        numbers={
            what: {name: of(times) for name, times in found.items()}
            for what, of in REPORTED.items()
        },
        figures=[draw(out, found, slopes)],
    )


def functions() -> dict[str, Callable[..., Any]]:
    """What is timed: functions of query, key and value."""

    def causal(*x: jax.Array) -> jax.Array:
        return linear_attention(*x, mask=Causal())

    def loss(*x: jax.Array) -> jax.Array:
        return jnp.sum(causal(*x) ** 2)

    return {
        "linear": linear_attention,
        "linear, causal": causal,
        "linear, causal, gradient": jax.grad(loss, argnums=(0, 1, 2)),
        "dense": lambda *x: attention(*x, implementation="dense"),
    }


def measured(function: Callable[..., Any], sizes: tuple[int, ...], rounds: int) -> dict[int, float]:
    """Seconds by T: the shortest of so many runs at each length, lengths in turn."""
    inputs = {
        size: jax.random.normal(jax.random.key(size), (3, size, 1, FEATURES), jnp.float32)
        for size in sizes
    }
    program = jax.jit(lambda x: function(*x))
    for x in inputs.values():
        jax.block_until_ready(program(x))
    best = dict.fromkeys(sizes, np.inf)
    for _ in range(rounds):
        for size, x in inputs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(x))
            best[size] = min(best[size], time.perf_counter() - began)
    return best


def slope(times: dict[int, float]) -> float:
    """Of log seconds over log T, from FITTED_FROM on; over all where that leaves below three."""
    sizes = [size for size in times if size >= FITTED_FROM]
    sizes = sizes if len(sizes) > 2 else list(times)
    logs = np.log([times[size] for size in sizes])
    return float(np.polyfit(np.log(sizes), logs, 1)[0])


def ratios(times: dict[int, float]) -> dict[str, float]:
    """What each doubling of T multiplies time by."""
    return {
        f"{size} to {2 * size}": round(times[2 * size] / times[size], 2)
        for size in times
        if 2 * size in times
    }


def milliseconds(times: dict[int, float]) -> dict[int, float]:
    """Rounded."""
    return {size: round(1e3 * seconds, 3) for size, seconds in times.items()}


REPORTED: dict[str, Callable[[dict[int, float]], Any]] = {
    "milliseconds by T": milliseconds,
    "ratio per doubling of T": ratios,
    "slope of log time over log T": lambda times: round(slope(times), 3),
}


def claims(slopes: dict[str, float], found: dict[str, dict[int, float]]) -> list[Claim]:
    """What the header says."""
    low, high = LINEAR
    linear = [
        Claim(
            claim=f"{name}, T up to {max(found[name])}: time ∝ T to the power",
            expected=f"from {low} to {high}",
            measured=power,
            holds=low <= power <= high,
        )
        for name, power in slopes.items()
        if name != "dense"
    ]
    dense = Claim(
        claim=f"dense, T up to {max(found['dense'])}: time ∝ T to the power",
        expected=f"at least {DENSE}",
        measured=slopes["dense"],
        holds=slopes["dense"] >= DENSE,
    )
    return [*linear, dense]


def draw(out: Path, found: dict[str, dict[int, float]], slopes: dict[str, float]) -> Path:
    """Milliseconds over T, both axes logarithmic."""
    made, ((ax,),) = figures.figure(width=6.0, height=4.0)
    for name, times in found.items():
        label = f"{name}: slope {slopes[name]:.2f}"
        shown = milliseconds(times)
        ax.plot(list(shown), list(shown.values()), marker="o", label=label)
    ax.set(xscale="log", yscale="log", xlabel="T", ylabel="milliseconds")
    sizes = sorted({size for times in found.values() for size in times})
    ax.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)
    return figures.save(made, out, "time_over_length")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
