"""Memory of the compiled program, with the tiles that the default uses; nothing is run.

One head, d = 64, float32. Beside each mode stands the dense path, which must fail the same check.
"""

import functools

import jax
import jax.numpy as jnp
import pytest

import jaxattn
from jaxattn import plan

MEBIBYTE = 2**20
LIMITS = {"forward": 12, "jvp": 16, "gradient": 32, "hvp": 64, "gradient of gradient": 80}


def modes(implementation):
    attention = functools.partial(jaxattn.attention, implementation=implementation)

    def loss(q, k, v):
        return jnp.sum(attention(q, k, v) ** 2)

    gradient = jax.grad(loss, argnums=(0, 1, 2))

    def inner(q, k, v):
        return sum(jnp.sum(g * x) for g, x in zip(gradient(q, k, v), (v, q, k), strict=True))

    return {
        "forward": attention,
        "jvp": lambda q, k, v: jax.jvp(attention, (q, k, v), (v, q, k))[1],
        "gradient": gradient,
        "hvp": lambda q, k, v: jax.jvp(gradient, (q, k, v), (v, q, k))[1],
        "gradient of gradient": jax.grad(inner, argnums=(0, 1, 2)),
    }


def temporary(mode, implementation, size, heads=1, key_heads=None):
    """Bytes that the compiled program takes beside its arguments and results."""
    x = jax.ShapeDtypeStruct((size, heads, 64), jnp.float32)
    key = jax.ShapeDtypeStruct((size, key_heads or heads, 64), jnp.float32)
    lowered = jax.jit(modes(implementation)[mode]).lower(x, key, key)
    return lowered.compile().memory_analysis().temp_size_in_bytes


@pytest.fixture
def default_tiles(monkeypatch):
    monkeypatch.setattr(plan, "ROWS", plan.DEFAULT_ROWS)
    monkeypatch.setattr(plan, "COLUMNS", plan.DEFAULT_COLUMNS)


@pytest.mark.parametrize(
    "mode",
    [
        m if m in ("forward", "gradient") else pytest.param(m, marks=pytest.mark.slow)
        for m in LIMITS
    ],
)
def test_memory_is_linear(mode, default_tiles):
    small, large = (temporary(mode, "blockwise", size) for size in (2048, 8192))
    assert large <= LIMITS[mode] * MEBIBYTE
    assert large <= 4.5 * max(small, MEBIBYTE)


@pytest.mark.parametrize("mode", ["gradient", pytest.param("hvp", marks=pytest.mark.slow)])
def test_the_dense_path_fails_the_same_check(mode):
    small, large = (temporary(mode, "dense", size) for size in (2048, 8192))
    assert large > LIMITS[mode] * MEBIBYTE and large > 4.5 * small


def test_eight_heads_take_at_most_eight_times_as_much(default_tiles):
    one, eight = (temporary("forward", "blockwise", 4096, heads) for heads in (1, 8))
    assert eight <= 8 * one


def test_heads_that_share_a_key_take_no_larger_tile(default_tiles):
    """16 query heads of one key head: two queries and results of 8 MiB, and tiles of 4 to 8."""
    assert temporary("forward", "blockwise", 2048, 16, key_heads=1) <= 32 * MEBIBYTE
