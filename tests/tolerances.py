"""The one table of tolerances: largest error over largest answer, by dtype.

Inputs are rounded to the dtype first and the oracle starts from the rounded numbers, so what is
left is the arithmetic's own error, on answers of order 1 and rows of at most a few dozen keys.

- float64: everything is summed in float64; u = 1e-16 times a few dozen terms. A path that fell
  back to float32 anywhere would show 1e-7.
- float32: u = 6e-8, likewise.
- float16, bfloat16: sums and softmax run in float32, so the forward error is the one rounding of
  the answer, u = 2^-11 and 2^-8 (half an ulp), and never that of a sum. A gradient may be rounded
  before it is summed over the query heads of a group: a few u.
"""

import jax.numpy as jnp
import numpy as np

FORWARD = {"float64": 1e-14, "float32": 2e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}
GRADIENT = {"float64": 1e-13, "float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}


def error(got, want):
    """`max |got - want| / max(1, max |want|)`; equal infinities do not count, NaN is inf."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    different = got != want
    if not different.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        worst = np.max(np.abs(got - want)[different])
    finite = np.abs(want[np.isfinite(want)])
    return np.inf if np.isnan(worst) else worst / max(1.0, finite.max(initial=0.0))


def assert_close(got, want, table=FORWARD, dtype=None):
    """`got` is `want` within the table's tolerance for its dtype."""
    dtype = jnp.dtype(got.dtype if dtype is None else dtype).name
    worst = error(got, want)
    assert worst <= table[dtype], f"error {worst:.2e} > {table[dtype]:.2e} ({dtype})"
