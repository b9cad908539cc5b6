"""The three proofs, small; and that each of them can fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import attention_is_permutation_equivariant as permuted
from experiments import causal_masks_stop_gradients as causal
from experiments import saturation_rows
from experiments import scaling_prevents_saturation as scaling
from experiments.report import checked_result


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False):
        yield


@pytest.mark.parametrize("module", [permuted, causal, scaling])
def test_every_claim_holds(module, tmp_path):
    result = checked_result(module.run(tmp_path, quick=True))
    assert [claim for claim in result["claims"] if not claim["holds"]] == []
    assert all(figure.stat().st_size > 10_000 for figure in result["figures"])


def test_positions_of_a_ten_thousandth_would_be_noticed():
    error = permuted.equivariance_errors(permuted.sized(1e-4), 3)
    assert error.min() > permuted.FLOAT32


def test_a_leak_of_the_smallest_number_would_be_noticed():
    subject = causal.subjects(4)[2]

    def leaky(value):
        out = subject.function(causal.Causal())(value)
        return out.at[0].add(value[3] * jnp.float32(1e-30))

    assert np.count_nonzero(causal.above(causal.under_jit(leaky, subject.at))) > 0


def test_a_row_that_should_not_be_0_would_be_noticed():
    subject = causal.subjects(4)[2]
    maps = causal.under_jit(lambda v: subject.function(causal.Causal())(v).at[2].set(0), subject.at)
    assert np.sum(causal.below(maps, subject) == 0) == 3


def test_another_scale_would_be_noticed():
    with jax.enable_x64(True):
        rows, _ = saturation_rows.drawn_rows(64, heads=8)
    rows["c"] = rows["c"] * 1.5
    claim = scaling.agree_over("entropy", {64: rows}, {})
    assert not claim["holds"] and claim["measured"] > 30


def test_the_jacobian_is_that_of_autodiff():
    with jax.enable_x64(True):
        scores = jnp.array([[0.3, -1.0, 2.0, 0.0], [12.0, 1.0, 2.0, 3.0]])
        jacobians = jax.vmap(jax.jacrev(jax.nn.softmax))(scores)
        norms = np.sum(np.asarray(jacobians) ** 2, axis=(1, 2))
        np.testing.assert_allclose(saturation_rows.statistics(scores)["‖J‖²"], norms, rtol=1e-9)


def test_a_polynomial_through_25_integrals_is_exact_enough():
    c = np.geomspace(3.0, 45.0, 9)
    for name, integral in scaling.EXACT.items():
        if name != scaling.SLOW:
            expected = [integral(float(value), scaling.KEYS) for value in c]
            np.testing.assert_allclose(scaling.on_variances(integral, c), expected, rtol=1e-8)
