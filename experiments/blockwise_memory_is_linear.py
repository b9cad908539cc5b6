"""The memory of tiled attention grows with T in every derivative; that of dense with T².

    temporary(8192) ≤ 4.5 · temporary(2048)

for the value, jvp, gradient, both mixed Hessian-vector products, gradient of gradient and jvp of
jvp, of one head of 64 features in float32. Programs are compiled and asked for the temporary memory
that they will take; nothing is run. Dense attention is the control: it must fail the same check.

Command: python -m experiments blockwise_memory_is_linear
Minutes: 1
Expected: tiled 7, 13, 17, 34, 48, 48 and 42 MiB at T = 8192; dense 512 to 2,800
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments import figures
from experiments.report import Claim, Result
from jaxattn import attention

MIB = 2**20
SIZES, QUICK_SIZES = (2048, 4096, 8192), (2048, 8192)
LIMITS = {  # MiB at T = 8192
    "forward": 12,
    "jvp": 16,
    "grad": 32,
    "jvp of grad": 64,
    "grad of jvp": 64,
    "grad of grad": 80,
    "jvp of jvp": 64,
}
QUICK_MODES = ("forward", "grad")
GROWTH = 4.5  # over four times the length; what does not grow is at least FLOOR
FLOOR = 1.0


def run(out: Path, quick: bool) -> Result:
    """Compile every mode at every length, tiled and dense."""
    modes = QUICK_MODES if quick else tuple(LIMITS)
    sizes = QUICK_SIZES if quick else SIZES
    tiled = {mode: [temporary(mode, "blockwise", size) for size in sizes] for mode in modes}
    dense = {mode: [temporary(mode, "dense", size) for size in sizes] for mode in modes}
    claims = [claim for mode in modes for claim in judged(mode, tiled[mode], dense[mode])]
    return Result(
        claims=claims,
        numbers={"T": list(sizes), "tiled, MiB": tiled, "dense, MiB": dense},
        figures=[draw(out, sizes, tiled, dense)],
    )


def judged(mode: str, tiled: list[float], dense: list[float]) -> list[Claim]:
    """Small and linear; and the control, where XLA did not fuse the scores away."""
    small, large = tiled[0], tiled[-1]
    growth = large / max(small, FLOOR)
    found = [
        Claim(
            claim=f"{mode}: tiled attention takes few MiB at T = 8192",
            expected=f"at most {LIMITS[mode]}",
            measured=large,
            holds=large <= LIMITS[mode],
        ),
        Claim(
            claim=f"{mode}: four times the length takes at most four times the memory",
            expected=f"at most {GROWTH}",
            measured=growth,
            holds=growth <= GROWTH,
        ),
    ]
    if dense[0] > 0:
        times = dense[-1] / dense[0]
        found.append(
            Claim(
                claim=f"{mode}: dense attention fails the same check",
                expected=f"more than {GROWTH}",
                measured=times,
                holds=times > GROWTH,
            )
        )
    return found


def temporary(mode: str, implementation: str, size: int) -> float:
    """MiB that the compiled program takes beside arguments and results."""
    x = jax.ShapeDtypeStruct((size, 1, 64), jnp.float32)
    program = jax.jit(derivative(mode, implementation)).lower(x, x, x).compile()
    memory: Any = program.memory_analysis()
    return memory.temp_size_in_bytes / MIB


def derivative(mode: str, implementation: str) -> Callable[..., Any]:
    """One of the derivatives in query, key and value, of out or of a loss."""
    attend = partial(attention, implementation=implementation)

    def loss(*x: jax.Array) -> jax.Array:
        return jnp.sum(attend(*x) ** 2)

    grad = jax.grad(loss, argnums=(0, 1, 2))

    def slope(*x: jax.Array) -> jax.Array:
        return jax.jvp(loss, x, x[::-1])[1]

    def squared(*x: jax.Array) -> jax.Array:
        return sum((jnp.sum(g * u) for g, u in zip(grad(*x), x[::-1], strict=True)), jnp.zeros(()))

    return {
        "forward": attend,
        "jvp": lambda *x: jax.jvp(attend, x, x[::-1]),
        "grad": grad,
        "jvp of grad": lambda *x: jax.jvp(grad, x, x[::-1])[1],
        "grad of jvp": jax.grad(slope, argnums=(0, 1, 2)),
        "grad of grad": jax.grad(squared, argnums=(0, 1, 2)),
        "jvp of jvp": lambda *x: jax.jvp(slope, x, x[::-1]),
    }[mode]


def draw(
    out: Path,
    sizes: tuple[int, ...],
    tiled: dict[str, list[float]],
    dense: dict[str, list[float]],
) -> Path:
    """Memory over length, both axes logarithmic, a line of slope 1 and of slope 2 beside."""
    made, axes = figures.figure(columns=2)
    for ax, found, title in zip(axes[0], (tiled, dense), ("tiled", "dense"), strict=True):
        for mode, numbers in found.items():
            ax.plot(sizes, [max(x, 0.1) for x in numbers], marker="o", markersize=3, label=mode)
        ax.set(xscale="log", yscale="log", xlabel="T", ylabel="temporary memory, MiB", title=title)
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.set_ylim(0.08, 5000)
    axes[0][0].legend(fontsize=7)
    return figures.save(made, out, "memory")
