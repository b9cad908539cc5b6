"""Training any module: a run that was stopped ends as the unbroken one, and learns."""

import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import fitting, run_folder
from experiments.fitting import Plan

PLAN = Plan(steps=30, batch=8, learning_rate=0.3, warmup=3, weight_decay=0.0)
SHORT = PLAN._replace(steps=10)


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Single precision and JAX's own promotion: optax and orbax are not ours to be strict with."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def line():
    """A line to be found: `y = x · (2, -1) + 3`."""
    x = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    return nnx.Linear(2, 1, rngs=nnx.Rngs(0)), (x, x @ np.float32([[2], [-1]]) + 3)


def squared(model, batch):
    return jnp.mean((model(batch[0]) - batch[1]) ** 2)


def interrupt_after(step, monkeypatch):
    """Ctrl-C when the metrics of this step are written."""

    def append(folder, lines, really=run_folder.append):
        really(folder, lines)
        if lines[-1]["step"] == step:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run_folder, "append", append)


def test_it_learns_and_leaves_the_module_alone(tmp_path):
    model, data = line()
    before = nnx.to_pure_dict(nnx.state(model))
    fitted = fitting.fit(model, squared, data, PLAN, tmp_path / "run")
    curve = fitting.losses(tmp_path / "run")
    assert len(curve) == 30 and curve[-1] < 0.1 * curve[0]
    assert float(squared(fitted, data)) < 0.1 * float(squared(model, data))
    chex.assert_trees_all_equal(before, nnx.to_pure_dict(nnx.state(model)))


def test_a_stopped_run_goes_on_and_ends_as_the_unbroken_one(tmp_path, monkeypatch):
    model, data = line()
    unbroken = fitting.fit(model, squared, data, PLAN, tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        interrupt_after(10, patch)
        with pytest.raises(KeyboardInterrupt, match="at step 10"):
            fitting.fit(model, squared, data, PLAN, tmp_path / "run")
    again = fitting.fit(model, squared, data, PLAN, tmp_path / "run")
    chex.assert_trees_all_equal(nnx.state(unbroken), nnx.state(again))
    assert not (tmp_path / "run-2").exists()
    np.testing.assert_array_equal(*(fitting.losses(tmp_path / x) for x in ("unbroken", "run")))


def test_a_finished_model_is_not_trained_again_until_its_experiment_ended(tmp_path):
    model, data = line()
    first = fitting.fit(model, squared, data, SHORT, tmp_path / "run")
    chex.assert_trees_all_equal(
        nnx.state(first), nnx.state(fitting.fit(model, squared, data, SHORT, tmp_path / "run"))
    )
    assert len(fitting.losses(tmp_path / "run")) == 10 and not (tmp_path / "run-2").exists()
    fitting.finish([tmp_path / "run"])
    fitting.fit(model, squared, data, SHORT, tmp_path / "run")
    assert len(run_folder.metrics(tmp_path / "run-2")) == 10


def test_another_plan_starts_beside(tmp_path):
    model, data = line()
    for plan in (SHORT, SHORT._replace(seed=1)):
        fitting.fit(model, squared, data, plan, tmp_path / "run")
    assert not np.array_equal(*(
        [x["loss"] for x in run_folder.metrics(tmp_path / name)] for name in ("run", "run-2")
    ))  # fmt: skip
