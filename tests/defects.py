"""What the tests of the project's list of defects share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

import jaxattn
from tests import calls, oracle


def row(name):
    """Put the row's name into the test's id."""
    return pytest.mark.parametrize("row", [name])


def arrays(dtype="float64", **sizes):
    """Random query, key and value as JAX arrays."""
    return [jnp.asarray(x, dtype) for x in calls.heads(**sizes).values()]


def gradients(implementation, operands, **options):
    """Gradients of sum(out²) in query, key and value."""

    def loss(*operands):
        out = jaxattn.attention(*operands, **options, implementation=implementation)
        return jnp.sum(out.astype(jnp.float32) ** 2)

    return calls.jit(jax.grad(loss, argnums=(0, 1, 2)))(*operands)


class Dropped(NamedTuple):
    ours: dict
    oracles: dict


def dropping(rate, shape, seed=0):
    """Arguments for dropout, ours and the oracle's."""
    if not rate:
        return Dropped({}, {})
    key = jax.random.key(seed)
    kept = oracle.kept(jax.random.bits(key, (2,), jnp.uint32), rate, shape)
    return Dropped({"dropout_rate": rate, "dropout_key": key}, {"dropout_rate": rate, "kept": kept})
