"""Self-attention without positions is permutation equivariant; positions break it.

    attend(P x) = P attend(x)   for every permutation P of the tokens, to float precision

Attention sees a set: permuted tokens give the same outputs, permuted, and so for the Jacobian.
Sinusoidal and rotary positions, a bias that depends on distance, and a causal mask each break
this, in proportion to how large the positions are.

Command: python -m experiments attention_is_permutation_equivariant
Minutes: 0.2
Expected: relative error about 5e-7 in float32 and 1e-15 in float64; with positions above 0.1
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report import Claim, Result
from jaxattn import attention, project, self_attention
from jaxattn.masks import Causal
from jaxattn.positions import rotary, sinusoidal

TOKENS, WIDTH = 64, 32
FLOAT32, FLOAT64, BROKEN = 2e-6, 1e-14, 0.01  # a few roundings of sums over 64 keys; and not


def run(out: Path, quick: bool) -> Result:
    """Errors of equivariance without and with positions, and a figure of them."""
    count = 10 if quick else 200
    errors = {name: equivariance_errors(layer, count) for name, layer in LAYERS.items()}
    with jax.enable_x64(True):
        wide = float(equivariance_errors(without_positions, count, jnp.float64).max())
        jacobian = jacobian_error()
    sizes = np.geomspace(1e-9, 1.0, 19)
    growing = errors_by_size(sizes)
    slope = float(np.polyfit(np.log(sizes[-9:-2]), np.log(growing[-9:-2]), 1)[0])
    plain = float(errors["no positions"].max())
    broken = {name: float(error.min()) for name, error in errors.items() if name != "no positions"}
    return Result(
        claims=claims(plain, wide, jacobian, min(broken.values()), slope, count),
        numbers={
            "tokens": TOKENS,
            "permutations": count,
            "largest error without positions": plain,
            "smallest error with positions": broken,
        },
        figures=[draw(out, errors, sizes, growing)],
    )


def claims(
    plain: float, wide: float, jacobian: float, broken: float, slope: float, count: int
) -> list[Claim]:
    """What was measured beside what the mathematics says; errors relative to the largest output."""
    worst = f"worst error of {count} permutations"
    return [
        Claim(
            claim=f"attend(P x) = P attend(x) in float32, {worst}",
            expected=f"at most {FLOAT32:g}",
            measured=plain,
            holds=plain <= FLOAT32,
        ),
        Claim(
            claim=f"attend(P x) = P attend(x) in float64, {worst}",
            expected=f"at most {FLOAT64:g}",
            measured=wide,
            holds=wide <= FLOAT64,
        ),
        Claim(
            claim="the Jacobian ∂out_i/∂x_j permutes in i and j, float64",
            expected=f"at most {FLOAT64:g}",
            measured=jacobian,
            holds=jacobian <= FLOAT64,
        ),
        Claim(
            claim="every kind of position breaks it: smallest error over kinds and permutations",
            expected=f"at least {BROKEN:g}",
            measured=broken,
            holds=broken >= BROKEN,
        ),
        Claim(
            claim="the error grows in proportion to the positions: slope on logarithmic axes",
            expected="0.95 to 1.05",
            measured=slope,
            holds=abs(slope - 1) <= 0.05,
        ),
    ]


Layer = Callable[[jax.Array, jax.Array], jax.Array]


def without_positions(x: jax.Array, weights: jax.Array) -> jax.Array:
    """One head, `[T, D] -> [T, D]`; weights are W_q, W_k and W_v, `[3, D, D]`."""
    return self_attention(x, *weights)


def sized(size: float | jax.Array) -> Layer:
    """The same head after sinusoidal positions of this size were added to the tokens."""

    def layer(x: jax.Array, weights: jax.Array) -> jax.Array:
        table = sinusoidal(jnp.arange(TOKENS), WIDTH).astype(x.dtype)
        return self_attention(x + jnp.asarray(size, x.dtype) * table, *weights)

    return layer


def with_rotary(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Queries and keys rotated by their positions."""
    query, key, value = (project(x, weight)[:, None, :] for weight in weights)
    positions = jnp.arange(TOKENS)
    return attention(rotary(query, positions), rotary(key, positions), value)[:, 0]


def with_distance_bias(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Scores fall with distance: -|i - j| / 8."""
    query, key, value = (project(x, weight)[:, None, :] for weight in weights)
    positions = jnp.arange(TOKENS)
    distance = jnp.abs(positions[:, None] - positions[None, :]).astype(x.dtype)
    return attention(query, key, value, bias=-distance / 8)[:, 0]


def with_causal_mask(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Order through the mask alone."""
    return self_attention(x, *weights, mask=Causal())


LAYERS: dict[str, Layer] = {
    "no positions": without_positions,
    "sinusoidal": sized(1.0),
    "rotary": with_rotary,
    "distance bias": with_distance_bias,
    "causal mask": with_causal_mask,
}


def tokens_and_weights(dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """x `[T, D]` and three matrices `[3, D, D]`."""
    first, second = jax.random.split(jax.random.key(0))
    weights = jax.random.normal(second, (3, WIDTH, WIDTH), dtype) / jnp.sqrt(WIDTH).astype(dtype)
    return jax.random.normal(first, (TOKENS, WIDTH), dtype), weights


def permutations(count: int) -> np.ndarray:
    """`[count, T]`, drawn at random."""
    return np.argsort(np.random.default_rng(0).random((count, TOKENS)), axis=1)


def equivariance_errors(layer: Layer, count: int, dtype=jnp.float32) -> np.ndarray:
    """The error for each of `count` random permutations."""
    given = tokens_and_weights(dtype)
    error = jax.jit(jax.vmap(lambda order: equivariance_error(layer, given, order)))
    return np.asarray(error(permutations(count)))


def errors_by_size(sizes: np.ndarray) -> np.ndarray:
    """The error of one permutation for each size of the positions that are added."""
    given, (order,) = tokens_and_weights(jnp.float32), permutations(1)
    error = jax.jit(jax.vmap(lambda size: equivariance_error(sized(size), given, order)))
    return np.asarray(error(jnp.asarray(sizes, jnp.float32)))


def equivariance_error(
    layer: Layer, given: tuple[jax.Array, jax.Array], order: jax.Array | np.ndarray
) -> jax.Array:
    """`max |f(P x) - P f(x)| / max |f(x)|` for one permutation."""
    x, weights = given
    expected = layer(x, weights)
    difference = layer(x[order], weights) - expected[order]
    return jnp.max(jnp.abs(difference)) / jnp.max(jnp.abs(expected))


def jacobian_error() -> float:
    """`J(P x)[i, :, j, :] - J(x)[π_i, :, π_j, :]`, relative to the largest entry."""
    x, weights = tokens_and_weights(jnp.float64)
    (order,) = permutations(1)
    jacobian = jax.jit(jax.jacrev(without_positions))
    expected = jacobian(x, weights)[order][:, :, order]
    difference = jnp.abs(jacobian(x[order], weights) - expected)
    return float(jnp.max(difference) / jnp.max(jnp.abs(expected)))


def draw(out: Path, errors: dict[str, np.ndarray], sizes: np.ndarray, growing: np.ndarray) -> Path:
    """Left, one dot a permutation; right, how the error grows with the positions."""
    from experiments import figures

    made, ((left, right),) = figures.figure(columns=2)
    jitter = np.random.default_rng(0)
    for row, (name, error) in enumerate(errors.items()):
        colour = figures.BLUE if name == "no positions" else figures.VERMILION
        height = row + jitter.uniform(-0.25, 0.25, error.shape)
        left.scatter(error, height, s=6, color=colour, alpha=0.5, linewidths=0)
    left.set_yticks(range(len(errors)), list(errors))
    left.invert_yaxis()
    left.set(xscale="log", xlabel="relative error of attend(P x) = P attend(x)")
    left.set_title("Without positions only rounding is left")
    right.loglog(sizes, growing, "o-", color=figures.VERMILION, markersize=4)
    rounding = float(errors["no positions"].max())
    right.axhline(rounding, color=figures.BLUE, linestyle="--", linewidth=1)
    right.text(1.0, rounding * 1.5, "no positions", color=figures.BLUE, fontsize=8, ha="right")
    right.set(xlabel="size of the sinusoidal positions", ylabel="relative error")
    right.set_title("Positions break it in proportion")
    return figures.save(made, out, "equivariance")


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
