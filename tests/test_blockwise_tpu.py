"""Memory of the program that XLA compiles for a TPU; no TPU is needed, and nothing is run.

Needs the extra `tpu`; left out where `libtpu` is not installed.
"""

import functools
import importlib.util
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn import plan

MODES = ("forward", "gradient", "jvp", "hvp")
GROWTH = 4.5  # at four times the length


@pytest.fixture(scope="module")
def device():
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed: pip install -e ".[tpu]"')
    from jax.experimental import topologies

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    return topologies.get_topology_desc("v5e:2x2", platform="tpu").devices[0]


def derivative(implementation, mode):
    attention = functools.partial(jaxattn.attention, implementation=implementation)
    gradient = jax.grad(lambda *x: jnp.sum(attention(*x) ** 2), argnums=(0, 1, 2))
    return {
        "forward": attention,
        "gradient": gradient,
        "jvp": lambda *x: jax.jvp(attention, x, x[::-1]),
        "hvp": lambda *x: jax.jvp(gradient, x, x[::-1])[1],
    }[mode]


def peak(device, implementation, mode, size):
    """Bytes in the device's memory at the worst moment, arguments and results included."""
    sharding = jax.NamedSharding(jax.sharding.Mesh(np.array([device]), "x"), jax.P())
    x = jax.ShapeDtypeStruct((size, 1, 64), jnp.float32, sharding=sharding)
    program = jax.jit(derivative(implementation, mode)).lower(x, x, x).compile()
    return program.memory_analysis().peak_memory_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_tiled_memory_is_linear(device, mode, monkeypatch):
    monkeypatch.setattr(plan, "ROWS", plan.DEFAULT_ROWS)
    monkeypatch.setattr(plan, "COLUMNS", plan.DEFAULT_COLUMNS)
    small, large = (peak(device, "blockwise", mode, size) for size in (2048, 8192))
    assert large <= GROWTH * small


@pytest.mark.slow
def test_dense_memory_is_not(device):
    small, large = (peak(device, "dense", "forward", size) for size in (2048, 8192))
    assert large > GROWTH * small
