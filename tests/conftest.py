"""Strict JAX for every test: no implicit promotion, float64 available, several devices."""

import gc
import os
import pathlib

# Programs run once, on a few numbers: code that is not optimised is there sooner.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0",
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

# Shapes in annotations are checked in tests, behind the door: at the door our own errors speak.
jaxtyping.install_import_hook(
    ["jaxattn.dense", "jaxattn.dropout", "jaxattn.softmax", "jaxattn.partial"], "beartype.beartype"
)

# The same examples in every run; each new shape compiles, hence few of them and no deadline.
hypothesis.settings.register_profile(
    "deterministic",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("deterministic")

import jaxattn.plan  # noqa: E402  (after the switches above)

MAPS = 20_000

# Small tiles, so that small arrays have several, with ragged edges.
jaxattn.plan.ROWS, jaxattn.plan.COLUMNS = 4, 3


@pytest.fixture(autouse=True, scope="module")
def programs_are_dropped():
    """Each compiled program maps memory, and a process may have but so many maps (65,530)."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(params=[entry.name for entry in jaxattn.IMPLEMENTATIONS])
def implementation(request):
    """The name of each implementation in turn: the semantics is one."""
    return request.param
