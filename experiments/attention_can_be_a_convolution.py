"""Heads with relative positions learn to be a convolution; with content, weights are no kernel.

Nine heads, whose scores are `-α_h |offset - Δ_h|²` and nothing else, learn centres Δ_h, sharpness
α_h and how they are mixed, from pictures of noise and what a 3 × 3 kernel makes of them: their
weights become the kernel. One head with a learned table of offsets becomes a blur, and could be no
more: weights are positive and sum to 1. Neither looks at the pixels, so that every picture gets
the same weights. Taking noise off pictures with an edge, a head that also sees pixels keeps the
edge, and one that does not cannot.

Command: python -m experiments attention_can_be_a_convolution
Minutes: 1
Expected: relative errors of the kernels below 0.02 (measured 0.002 and 0.004); weights that differ
between pictures by exactly 0, and by 0.43 with content, which leaves a quarter of the square error
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.convolution_figure import draw
from experiments.convolution_heads import (
    REACH,
    SIDE,
    Parameters,
    content_head,
    convolved,
    inside,
    kernel,
    learned,
    nine_heads,
    one_head,
)
from experiments.report import Claim, Result

STEPS, QUICK_STEPS = 3000, 800
PICTURES, NOISE = 8, 0.15
RATE = {nine_heads: 0.05, one_head: 0.15, content_head: 0.05}
EDGES = np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]])  # Sobel's, signed
BLUR = np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16
CLOSE, BETTER = 0.02, 2.0


class Denoised(NamedTuple):
    """A test picture, what two heads make of it, and their weights at a pixel by the edge."""

    clean: np.ndarray
    noisy: np.ndarray
    fixed: np.ndarray
    content: np.ndarray
    fixed_weights: np.ndarray
    content_weights: np.ndarray


def run(out: Path, quick: bool) -> Result:
    """Learn a kernel, a blur, and to take off noise, with and without content."""
    steps = QUICK_STEPS if quick else STEPS
    kernels = {"edges": imitated(nine_heads, nine(), EDGES, steps)}
    kernels["blur"] = imitated(one_head, table(), BLUR, steps)
    truth = {"edges": np.pad(EDGES, 1), "blur": np.pad(BLUR, 1)}
    errors = {name: relative(kernels[name], truth[name]) for name in truth}
    fixed = learned(denoising(one_head), table(), steps, RATE[content_head])[0]
    content = learned(denoising(content_head), {**table(), **sight()}, steps, RATE[content_head])[0]
    found, numbers = compared(fixed, content)
    return Result(
        claims=claims(errors, numbers),
        numbers={"relative error of the kernel": errors, "steps": steps, **numbers},
        figures=[draw(out, truth, kernels, found)],
    )


def nine() -> Parameters:
    """Centres drawn within two pixels, wide heads, mixed at random."""
    first, second = jax.random.split(jax.random.key(0))
    centre = jax.random.uniform(first, (9, 2), minval=-1.5, maxval=1.5)
    return {
        "centre": centre,
        "log_sharpness": jnp.full(9, -0.5),
        "mix": 0.1 * jax.random.normal(second, (9,)),
    }


def table() -> Parameters:
    """All offsets alike."""
    return {"table": jnp.zeros((2 * REACH + 1, 2 * REACH + 1))}


def sight() -> Parameters:
    """Small matrices from (x, x², 1) to two features."""
    query, key = 0.1 * jax.random.normal(jax.random.key(2), (2, 3, 2))
    return {"w_query": query, "w_key": key}


def imitated(heads: Any, start: Parameters, target: np.ndarray, steps: int) -> np.ndarray:
    """The kernel `[5, 5]` of heads that learned to do what a kernel of 3 × 3 does."""

    def loss(parameters: Parameters, key: jax.Array) -> jax.Array:
        picture = jax.random.normal(key, (PICTURES, SIDE, SIDE))
        wrong = heads(parameters, picture)[0] - convolved(picture, target)
        return jnp.mean(inside(wrong) ** 2)

    parameters, _ = learned(loss, start, steps, RATE[heads])
    return kernel(heads(parameters, jnp.zeros((1, SIDE, SIDE)))[1])


def edges(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Pictures `[B, s, s]` of two greys with a straight edge between, and the same with noise."""
    keys = jax.random.split(key, 4)
    angle = jax.random.uniform(keys[0], (PICTURES, 1, 1), maxval=2 * jnp.pi)
    shift = jax.random.uniform(keys[1], (PICTURES, 1, 1), minval=-3.0, maxval=3.0)
    greys = jax.random.uniform(keys[2], (2, PICTURES, 1, 1), minval=-1.0, maxval=1.0)
    y, x = jnp.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    side = x[None] * jnp.cos(angle) + y[None] * jnp.sin(angle) > shift
    clean = jnp.where(side, greys[0], greys[1])
    return clean, clean + NOISE * jax.random.normal(keys[3], clean.shape)


def denoising(head: Any) -> Any:
    """The loss of a head that takes off noise: mean square error inside."""

    def loss(parameters: Parameters, key: jax.Array) -> jax.Array:
        clean, noisy = edges(key)
        return jnp.mean(inside(head(parameters, noisy)[0] - clean) ** 2)

    return loss


def compared(fixed: Parameters, content: Parameters) -> tuple[Denoised, dict[str, Any]]:
    """Both heads on the same pictures that neither has seen."""
    parts = [jax.jit(edges)(jax.random.key(1000 + number)) for number in range(16)]
    clean, noisy = (jnp.concatenate(part) for part in zip(*parts, strict=True))
    first, weights = jax.jit(one_head)(fixed, noisy)
    second, seen = jax.jit(content_head)(content, noisy)
    left = {
        name: float(jnp.mean(inside(x - clean) ** 2))
        for name, x in (("noise", noisy), ("without content", first), ("with content", second))
    }
    again = jax.jit(one_head)(fixed, noisy[::-1])[1]
    numbers = {
        "mean square error": left,
        "how weights differ between pictures, greatest": {
            "without content": float(jnp.max(jnp.abs(again - weights))),
            "with content": float(jnp.max(jnp.abs(seen - seen[::-1]))),
        },
    }
    shown = int(jnp.argmax(jnp.std(clean, axis=(1, 2))))
    at = by_the_edge(np.asarray(clean[shown]))
    row = [np.asarray(w)[at].reshape(SIDE, SIDE) for w in (weights, seen[shown])]
    pictures = [np.asarray(x[shown]) for x in (clean, noisy, first, second)]
    return Denoised(*pictures, *row), numbers


def by_the_edge(clean: np.ndarray) -> int:
    """The token nearest the middle whose right neighbour, or lower one, is another grey."""
    other = (clean[:-1, :-1] != clean[:-1, 1:]) | (clean[:-1, :-1] != clean[1:, :-1])
    y, x = np.nonzero(other)
    nearest = np.argmin((y - SIDE / 2) ** 2 + (x - SIDE / 2) ** 2)
    return int(y[nearest] * SIDE + x[nearest])


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    """`|found - truth| / |truth|`."""
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def claims(errors: dict[str, float], numbers: dict[str, Any]) -> list[Claim]:
    """What was learned beside what was to be learned."""
    left = numbers["mean square error"]
    differ = numbers["how weights differ between pictures, greatest"]
    gain = left["without content"] / left["with content"]
    return [
        *(
            Claim(
                claim=f"{who}: relative error of the kernel that was learned",
                expected=f"at most {CLOSE}",
                measured=errors[name],
                holds=errors[name] <= CLOSE,
            )
            for name, who in (
                ("edges", "nine heads with relative positions become Sobel's kernel"),
                ("blur", "one head becomes a blur"),
            )
        ),
        Claim(
            claim="without content all pictures get the same weights: greatest difference",
            expected="exactly 0",
            measured=differ["without content"],
            holds=differ["without content"] == 0,
        ),
        Claim(
            claim="with content they do not",
            expected="at least 0.05",
            measured=differ["with content"],
            holds=differ["with content"] >= 0.05,
        ),
        Claim(
            claim="noise by an edge: square error without content over that with it",
            expected=f"at least {BETTER}",
            measured=gain,
            holds=gain >= BETTER,
        ),
    ]


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
