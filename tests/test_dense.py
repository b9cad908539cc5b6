"""The definition as a program: what a step with a cache must not do to its keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxattn
from jaxattn.masks import Causal
from tests import calls, jaxprs, oracle
from tests.tolerances import assert_close


def step(query, key, value, positions):
    """One new token, and a cache of which a part is filled."""
    places = jnp.arange(key.shape[1], dtype=jnp.int32)
    places = jnp.where(places <= positions[0, 0], places, -1)
    options = dict(mask=Causal(), query_positions=positions, key_positions=places)
    return jaxattn.attention(query, key, value, **options, implementation="dense")


def test_a_step_neither_repeats_nor_transposes_its_keys():
    operands = calls.heads(batch=(1,), queries=1, keys=50, count=8, key_heads=2, size=12)
    jaxpr = jax.make_jaxpr(step)(*operands.values(), jnp.array([[40]], jnp.int32))
    largest = max(x.aval.size for equation in jaxprs.equations(jaxpr) for x in equation.outvars)
    assert largest == operands["key"].size
    scores, _ = jaxprs.dots(jaxpr)
    keys = scores.invars[np.argmax([x.aval.size for x in scores.invars])].aval.shape
    assert keys == (1, 2, 50, 12)  # [B, K, S, H]: features are still the last axis
    (kept,) = calls.jit(step)(*operands.values(), jnp.array([[40]], jnp.int32))
    seen = {name: x[:, :41] for name, x in operands.items()}
    assert_close(kept, oracle.attention(**seen).out[0])


@pytest.mark.parametrize("axis", [0, 2], ids=["batch", "heads"])
def test_grouped_heads_on_a_mesh_with_explicit_axes(axis):
    operands = calls.heads()
    want = oracle.attention(**operands).out
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        spread = NamedSharding(mesh, PartitionSpec(*(None,) * axis, "x"))
        operands = {name: jax.device_put(x, spread) for name, x in operands.items()}
        out = calls.attention(**operands, implementation="dense")
    assert out.sharding.spec[axis] == "x"
    assert_close(out, want)
