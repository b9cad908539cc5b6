"""Strict JAX for every test: no implicit promotion, float64 available, several devices."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

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
