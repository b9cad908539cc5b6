"""Steps whose loss draws at random, or that the host takes part in: Ctrl-C saves, and it goes on.

`fitting.py` is for pairs that lie in memory; here the caller brings the steps. What a step draws is
a function of the seed and the number of the step alone, and an experiment that trains several
modules keeps each of them until `forget`: the same command goes on where it was stopped.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments import run_folder
from experiments.training import State
from experiments.training_loop import interruption

CHUNK = 10  # steps in one call: the host looks at losses, and at Ctrl-C, only this often
EVERY = 500  # steps from one checkpoint to the next

Advance = Callable[[State, int], tuple[State, Any]]
Loss = Callable[[Any, Any, jax.Array], jax.Array]


class Fresh(NamedTuple):
    """A module taken apart, before its first step."""

    graph: nnx.GraphDef
    rest: Any
    state: State

    def module(self, params: nnx.State) -> Any:
        """The module with these parameters."""
        return nnx.merge(self.graph, params, self.rest)


def fresh(
    make: Callable[[nnx.Rngs], nnx.Module], optimizer: optax.GradientTransformation, seed: int
) -> Fresh:
    """The module that `make` makes from a seed, with the state of an optimizer."""
    module = nnx.jit(lambda key: make(nnx.Rngs(key)))(jax.random.key(seed))
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    # Weak types would be gone after a step, and all be compiled again.
    params = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), params)
    return Fresh(graph, rest, State(jnp.zeros((), jnp.int32), params, optimizer.init(params)))


def adamw(steps: int, peak: float, decay: float = 0.05) -> optax.GradientTransformation:
    """AdamW on gradients of norm at most 1; a tenth of the steps warms up, then a cosine falls."""
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, max(1, steps // 10), steps, peak / 100)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=decay))


def updated(optimizer: optax.GradientTransformation, state: State, gradient: Any) -> State:
    """The state one step later."""
    updates, after = optimizer.update(gradient, state.optimizer, state.params)
    params = cast(nnx.State, optax.apply_updates(state.params, updates))
    return State(state.step + 1, params, after)


def scanned(
    new: Fresh, loss: Loss, optimizer: optax.GradientTransformation
) -> Callable[..., tuple[State, jax.Array]]:
    """`(state, data, seed, length) -> (state, losses)`: `length` steps in one dispatch.

    Args:
      new: only its structure is used.
      loss: `(module, data, key) -> number`; the key is that of the step.
      optimizer: of optax.
    """

    def steps(state: State, data: Any, seed: jax.Array, length: int) -> tuple[State, jax.Array]:
        def step(state: State, _: None) -> tuple[State, jax.Array]:
            key = jax.random.fold_in(jax.random.key(seed), state.step)
            value_of = jax.value_and_grad(lambda p: loss(new.module(p), data, key))
            value, gradient = value_of(state.params)
            return updated(optimizer, state, gradient), value

        return jax.lax.scan(step, state, length=length)

    return jax.jit(steps, static_argnames="length", donate_argnames="state")


def fit(advance: Advance, state: State, steps: int, out: Path, label: str) -> State:
    """The state after so many steps; from a checkpoint in `out` where there is one.

    Args:
      advance: `(state, length) -> (state, losses)`.
      state: before the first step.
      steps: in all.
      out: of the experiment; `forget` removes what is written there.
      label: unique in the experiment.

    Raises:
      KeyboardInterrupt: after Ctrl-C, when the state is saved.
    """
    folder = run_of(out, state, steps, label)
    if (folder / "checkpoints").exists():
        state = run_folder.restore(folder, state)
    step = int(state.step)
    with interruption() as interrupted, progress_bar() as bar:
        task = bar.add_task(label, total=steps, completed=step, loss=np.nan)
        while step < steps and not interrupted.is_set():
            length = min(CHUNK - step % CHUNK, steps - step)
            state, losses = advance(state, length)
            step += length
            bar.update(task, completed=step, loss=float(np.mean(losses)))
            if step % EVERY == 0 or step == steps:
                run_folder.save(folder, state)
        if interrupted.is_set():
            run_folder.save(folder, state)
            raise KeyboardInterrupt(f"saved {label} at step {step}; the same command goes on")
    return state


def run_of(out: Path, state: State, steps: int, label: str) -> Path:
    """A folder's name that another model or another number of steps does not share."""
    shapes = jax.tree.map(lambda x: (x.shape, str(x.dtype)), state)
    mark = hashlib.sha256(f"{label} {steps} {shapes}".encode()).hexdigest()[:10]
    return out / "unfinished" / f"{label.replace(' ', '-')}-{mark}"


def forget(out: Path) -> None:
    """Remove the checkpoints of a finished experiment, so that the next run trains anew."""
    shutil.rmtree(out / "unfinished", ignore_errors=True)


def progress_bar() -> Progress:
    """A bar with its label and the loss."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
