"""A causal mask stops gradients: no output depends on a later token, and not even by rounding.

    ∂out_i/∂x_j = 0 exactly for j > i,   and not 0 for j ≤ i

for tokens, keys and values, eagerly, under jit and under vmap. One entry below the diagonal is 0
as well, rightly: row 0 attends to one key, whose weight is 1 whatever the key is, so that
∂out_0/∂key_0 = 0. Beside it the control: without the mask entries above the diagonal are not 0.

Command: python -m experiments causal_masks_stop_gradients
Minutes: 0.3
Expected: 0 nonzero entries above the diagonal, 0 zero entries below it
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report import Claim, Result
from jaxattn import attention, self_attention
from jaxattn.masks import Causal, Mask

TOKENS, HEADS, SIZE = 12, 2, 4

Attend = Callable[[jax.Array], jax.Array]


class Subject(NamedTuple):
    """A function of one argument `[T, ...]`, where the argument is, and what may be 0."""

    name: str
    function: Callable[[Mask | None], Attend]
    at: jax.Array
    first_entry_is_zero: bool


def run(out: Path, quick: bool) -> Result:
    """The Jacobian of every subject in every mode, with the mask and without it."""
    size = 6 if quick else TOKENS
    chosen = subjects(size)
    found = {
        (subject.name, mode): jacobian_of(subject.function(Causal()), subject.at)
        for subject in chosen
        for mode, jacobian_of in MODES.items()
    }
    control = {subject.name: under_jit(subject.function(None), subject.at) for subject in chosen}
    claims = [
        claim
        for subject in chosen
        for claim in judged(subject, found, above(control[subject.name]), size)
    ]
    smallest = {
        subject.name: float(below(found[subject.name, "jit"], subject).min()) for subject in chosen
    }
    return Result(
        claims=[*claims, future_is_inert(size)],
        numbers={
            "tokens": size,
            "modes": list(MODES),
            "smallest entry of the maps at or below the diagonal": smallest,
        },
        figures=[draw(out, {name: found[name, "jit"] for name in control}, control["x"])],
    )


def judged(
    subject: Subject,
    found: dict[tuple[str, str], np.ndarray],
    control: np.ndarray,
    size: int,
) -> list[Claim]:
    """Exact zeros above the diagonal, none below, in all modes; and the control."""
    maps = np.concatenate([found[subject.name, mode] for mode in MODES])
    leaks, holes = np.count_nonzero(above(maps)), np.sum(below(maps, subject) == 0)
    pairs = size * (size - 1) // 2
    but_one = ", but ∂out_0/∂key_0" if subject.first_entry_is_zero else ""
    return [
        Claim(
            claim=f"∂out_i/∂{subject.name}_j = 0 for j > i: entries that are not",
            expected="0, in eager, jit and vmap",
            measured=int(leaks),
            holds=leaks == 0,
        ),
        Claim(
            claim=f"∂out_i/∂{subject.name}_j ≠ 0 for j ≤ i{but_one}: entries that are 0",
            expected="0, in eager, jit and vmap",
            measured=int(holes),
            holds=holes == 0,
        ),
        Claim(
            claim=f"control without the mask: ∂out_i/∂{subject.name}_j ≠ 0 for j > i",
            expected=f"all {pairs} pairs",
            measured=int(np.count_nonzero(control)),
            holds=np.count_nonzero(control) == pairs,
        ),
    ]


def subjects(size: int) -> list[Subject]:
    """Attention as a function of tokens, of keys and of values."""
    width = HEADS * SIZE
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.normal(keys[0], (size, width))
    weights = jax.random.normal(keys[1], (3, width, width)) / jnp.sqrt(width)
    query, key, value = jax.random.normal(keys[2], (3, size, HEADS, SIZE))
    return [
        Subject("x", lambda mask: lambda x: self_attention(x, *weights, mask=mask), x, False),
        Subject("key", lambda mask: lambda k: attention(query, k, value, mask=mask), key, True),
        Subject("value", lambda mask: lambda v: attention(query, key, v, mask=mask), value, False),
    ]


def eagerly(function: Attend, at: jax.Array) -> np.ndarray:
    """`[1, T, T]`, backwards, operation by operation, without a compiled program."""
    jacobian = np.asarray(jax.jacrev(function)(at))
    return largest(jacobian[None], jacobian.ndim - at.ndim)


def under_jit(function: Attend, at: jax.Array) -> np.ndarray:
    """`[1, T, T]`, forwards, as one compiled program."""
    jacobian = np.asarray(jax.jit(jax.jacfwd(function))(at))
    return largest(jacobian[None], jacobian.ndim - at.ndim)


def under_vmap(function: Attend, at: jax.Array) -> np.ndarray:
    """`[3, T, T]`, backwards, for a batch of arguments."""
    batch = jnp.stack([at * factor for factor in (0.5, 1.0, 2.0)])
    jacobians = np.asarray(jax.jit(jax.vmap(jax.jacrev(function)))(batch))
    return largest(jacobians, jacobians.ndim - 1 - at.ndim)


MODES = {"eager": eagerly, "jit": under_jit, "vmap": under_vmap}


def largest(jacobians: np.ndarray, rank: int) -> np.ndarray:
    """`[M, T, ..., S, ...] -> [M, T, S]`: the largest |entry| over features; `rank` of the output.

    A maximum, since a sum of squares could underflow to a 0 that is none.
    """
    features = tuple(axis for axis in range(1, jacobians.ndim) if axis not in (1, 1 + rank))
    return np.abs(jacobians).max(axis=features)


def above(maps: np.ndarray) -> np.ndarray:
    """The entries with j > i."""
    return maps[:, ~np.tri(maps.shape[-1], dtype=bool)]


def below(maps: np.ndarray, subject: Subject) -> np.ndarray:
    """The entries with j ≤ i that should not be 0."""
    chosen = np.tri(maps.shape[-1], dtype=bool)
    chosen[0, 0] = not subject.first_entry_is_zero
    return maps[:, chosen]


def future_is_inert(size: int) -> Claim:
    """Tokens replaced by 1e30 change no bit of what came before."""
    query, key, value = jax.random.normal(jax.random.key(3), (3, size, HEADS, SIZE))
    now, attend = size // 2, jax.jit(lambda k, v: attention(query, k, v, mask=Causal()))
    changed = attend(key.at[now:].set(1e30), value.at[now:].set(-1e30))
    equal = np.array_equal(attend(key, value)[:now], changed[:now])
    return Claim(
        claim="keys and values of the future set to 1e30: the past, bit for bit",
        expected="the same",
        measured="the same" if equal else "different",
        holds=equal,
    )


def draw(out: Path, maps: dict[str, np.ndarray], control: np.ndarray) -> Path:
    """A map for each argument, and the control; exact zeros are hatched."""
    from matplotlib.colors import LogNorm

    from experiments import figures

    panels = {f"∂out / ∂{name}, causal": found[0] for name, found in maps.items()}
    panels["∂out / ∂x, no mask"] = control[0]
    made, (row,) = figures.figure(columns=len(panels), width=2.9, height=3.1)
    high = max(panel.max() for panel in panels.values())
    for ax, (name, panel) in zip(row, panels.items(), strict=True):
        ax.grid(False)
        ax.set_facecolor("#eeeeee")
        ax.add_patch(figures.hatched(len(panel)))
        picture = ax.imshow(
            np.ma.masked_equal(panel, 0), norm=LogNorm(high / 1e4, high), cmap="viridis", zorder=2
        )
        ax.set(title=name, xlabel="token j")
    row[0].set_ylabel("output i")
    made.colorbar(picture, ax=list(row), label="largest |entry|; hatched: exactly 0", shrink=0.8)
    return figures.save(made, out, "jacobians")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
