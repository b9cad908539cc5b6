"""Training: a resumed run is the unbroken one, Ctrl-C saves, and nothing is overwritten."""

import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from experiments import language_model, run_folder, text, training, training_loop
from experiments.training import Recipe

BEFORE = signal.getsignal(signal.SIGINT)
TINY = Recipe(context=8, width=8, layers=1, heads=2, batch=2, steps=20, warmup=4, dropout=0.1)
DATA = b"the quick brown fox jumps over the lazy dog; " * 12


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Single precision and JAX's own promotion: optax and orbax are not ours to be strict with."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(autouse=True, scope="module")
def compile_once():
    """One compilation a recipe; that another one gives the same bits is a slow test's."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            training_loop,
            "compiled",
            lambda model: made.setdefault(model.recipe, training.compiled(model)),
        )
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return language_model.train(DATA, TINY, tmp_path_factory.mktemp("runs") / "unbroken")


def send_interrupt_at(step):
    return lambda now: signal.raise_signal(signal.SIGINT) if now == step else None


def without_speed(folder):
    lines = run_folder.metrics(folder)
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was left by Ctrl-C after 10 steps of 20."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        with pytest.raises(KeyboardInterrupt, match="at step 10"):
            language_model.train(DATA, TINY, folder, watch=send_interrupt_at(10))
    return folder


def test_ctrl_c_saves_before_it_leaves(stopped):
    with run_folder.manager(stopped) as checkpoints:
        assert checkpoints.latest_step() == 10
    assert [line["step"] for line in run_folder.metrics(stopped)] == list(range(1, 11))
    assert signal.getsignal(signal.SIGINT) is BEFORE


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(stopped, unbroken):
    # What was written after the checkpoint, as by a run that was killed, is done again.
    run_folder.append(stopped, [{"step": 11, "loss": -1.0}])
    resumed = language_model.train(DATA, TINY, stopped, resume=True)
    chex.assert_trees_all_equal(resumed.state, unbroken.state)
    assert without_speed(stopped) == without_speed(unbroken.folder)
    assert resumed.validation == unbroken.validation


def test_windows_and_dropout_are_other_ones_in_each_step(unbroken):
    tokens = jax.numpy.asarray(np.frombuffer(DATA, np.uint8))
    keys = [jax.random.fold_in(jax.random.key(TINY.seed), step) for step in range(2)]
    first, second = (text.random_windows(key, tokens, 2, 8) for key in keys)
    assert not np.array_equal(first, second)
    surprise = jax.jit(functools.partial(training.surprise, unbroken.model))
    nats = [surprise(unbroken.state.params, first, key) for key in keys]
    assert not np.array_equal(*nats)


def test_metrics_have_a_line_for_each_step(unbroken):
    lines = run_folder.metrics(unbroken.folder)
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 21))
    assert sum("validation" in line for line in lines) == 1
    assert sum("tokens_per_second" in line for line in lines) == 2


def test_validation_is_the_mean_over_its_bytes(unbroken):
    parts = unbroken.text
    everything = np.concatenate([parts.train, parts.validation]).astype(np.int32)
    places = np.arange(len(parts.validation))
    # The window in which a byte counts ends with it or up to half a context later.
    ends = len(parts.train) + places // 4 * 4 + 4
    padded = np.pad(everything, (0, 4))
    windows = np.stack([padded[end - 9 : end] for end in ends])
    surprise = jax.jit(functools.partial(training.surprise, unbroken.model))
    nats = surprise(unbroken.state.params, windows)[places, places % 4 + 4]
    assert unbroken.validation == pytest.approx(float(np.mean(nats)), rel=1e-5)


def test_somebody_elses_run_is_not_overwritten(unbroken):
    with pytest.raises(FileExistsError, match="--resume continues"):
        language_model.train(DATA, TINY, unbroken.folder)
    assert run_folder.free(unbroken.folder).name == "unbroken-2"


def test_another_recipe_or_text_is_no_resumption(unbroken):
    with pytest.raises(ValueError, match="with width=8; got width=16"):
        language_model.train(DATA, TINY._replace(width=16), unbroken.folder, resume=True)
    with pytest.raises(ValueError, match="with text="):
        language_model.train(DATA + b"!", TINY, unbroken.folder, resume=True)


def test_resume_without_a_run_or_a_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="found no run in"):
        language_model.train(DATA, TINY, tmp_path / "nothing", resume=True)
    run_folder.start(tmp_path / "begun", TINY, DATA)
    with pytest.raises(FileNotFoundError, match="found no checkpoint in"):
        language_model.train(DATA, TINY, tmp_path / "begun", resume=True)


@pytest.mark.parametrize(
    "change", [{"steps": 0}, {"batch": -1}, {"warmup": -1}, {"learning_rate": 0.0}]
)
def test_a_recipe_that_makes_no_sense(tmp_path, change):
    (name,) = change
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must be"):
        language_model.train(DATA, TINY._replace(**change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_errors_reach_the_command_line_as_one_line(tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    status = language_model.main(text_file=tmp_path / "empty.txt", runs=tmp_path / "runs")
    assert status == 2 and "which is empty" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_the_command_trains_on_any_text_and_resumes(tmp_path, capsys, monkeypatch):
    file = tmp_path / "fox.txt"
    file.write_bytes(DATA)
    options = dict(text_file=file, runs=tmp_path / "runs", name="fox")
    assert language_model.main(TINY, **options) == 0
    shown = capsys.readouterr().out
    assert "Kneser-Ney 5-gram" in shown and "sample 2" in shown
    assert {path.name for path in (tmp_path / "runs" / "fox").iterdir()} == {
        "checkpoints", "loss.png", "metrics.jsonl", "recipe.json"
    }  # fmt: skip
    assert language_model.main(TINY, **options, resume=True) == 0  # nothing is left to do
    assert language_model.main(TINY, **options) == 2


@pytest.mark.slow
def test_ctrl_c_from_outside(tmp_path):
    """A real process, a real signal; the run goes on where it stopped."""
    (tmp_path / "fox.txt").write_bytes(DATA)
    options = "--context 8 --width 8 --layers 1 --heads 2 --batch 2 --steps 200000 --name fox"
    files = ["--text", str(tmp_path / "fox.txt"), "--runs", str(tmp_path)]
    command = [sys.executable, "-m", "experiments.language_model", *options.split(), *files]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    lines = tmp_path / "fox" / "metrics.jsonl"
    while not (lines.exists() and lines.stat().st_size):
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "go on with --resume --name fox" in out
    last = json.loads(lines.read_text().splitlines()[-1])["step"]
    with run_folder.manager(tmp_path / "fox") as checkpoints:
        assert checkpoints.latest_step() == last


def test_the_claims_compare_with_what_was_counted(unbroken, monkeypatch):
    counted = dict(zip(language_model.BEATEN, [9.0, 8.0, 1e-3, 7.0], strict=True))
    monkeypatch.setattr(language_model, "show", lambda trained, console: (counted, ["text"]))
    result = language_model.judged_by_ngrams(unbroken)
    assert [claim["holds"] for claim in result["claims"]] == [False, True, True, False, True]
    passed = result["numbers"]["below after how many steps"]
    assert list(passed.values()) == [20, 20, "not yet", 20]


def test_a_model_is_below_when_it_stays_so():
    lines = [
        {"step": step, "validation": nats} for step, nats in enumerate((3.0, 1.9, 2.1, 1.8, 1.0))
    ]
    assert language_model.steps_until_below(lines, 2.0) == 3
    assert language_model.steps_until_below(lines, 0.5) == "not yet"


def test_the_default_is_what_the_claim_says():
    state = jax.eval_shape(lambda: training.create(Recipe())[1])
    assert sum(leaf.size for leaf in jax.tree.leaves(state.params)) == 842_496
    assert Recipe().steps == 1500 and Recipe().warmup >= 100
