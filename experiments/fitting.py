"""Train any module on pairs that fit into memory, in a folder, so that it can be stopped.

What a step draws depends on the seed and the number of the step alone: a run that is stopped by
Ctrl-C and started again with the same command ends as if nothing had happened.
"""

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments import run_folder
from experiments.training import State
from experiments.training_loop import interruption, leave_if

CHUNK = 10  # steps in one dispatch
EVERY = 250  # steps from one checkpoint to the next
Module = TypeVar("Module", bound=nnx.Module)
Loss = Callable[[Any, Any], jax.Array]  # (module, batch) -> a scalar


class Plan(NamedTuple):
    """How a module is trained: AdamW, a linear warm-up, then a cosine to a hundredth."""

    steps: int
    batch: int = 64
    learning_rate: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.01
    seed: int = 0


def fit(module: Module, loss: Loss, data: Any, plan: Plan, folder: Path, about: str = "") -> Module:
    """The module, trained for `plan.steps` steps; losses are in the folder's metrics.jsonl.

    Args:
      module: as it starts; it is not changed.
      loss: of a batch; nothing random in it.
      data: a pytree of arrays with equally many examples.
      plan: see `Plan`.
      folder: where to keep metrics and checkpoints. A run of the same module, data and plan goes on
        where it was stopped, until `finish`: then it is left alone, and a new one starts beside it.
      about: shown beside the bar.

    Returns:
      a module of the same structure.

    Raises:
      KeyboardInterrupt: after Ctrl-C, when the state is saved.
    """
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    # Copies, since steps reuse their memory; weak types would be compiled twice.
    params = jax.tree.map(lambda x: jnp.array(x, x.dtype), params)
    optimizer = adamw(plan)
    state = State(jnp.zeros((), jnp.int32), params, optimizer.init(params))
    folder, state = begin(folder, identity(module, data, plan), state)

    def loss_of(params: nnx.State, batch: Any) -> jax.Array:
        return loss(nnx.merge(graph, params, rest), batch)

    advance = jax.jit(
        functools.partial(several_steps, loss_of, optimizer, plan),
        static_argnames="length",
        donate_argnames="state",
    )
    data = jax.tree.map(jnp.asarray, data)
    state = loop(functools.partial(advance, data=data), state, plan, folder, about or folder.name)
    return nnx.merge(graph, state.params, rest)


def adamw(plan: Plan) -> optax.GradientTransformation:
    """AdamW on gradients of norm at most 1."""
    peak, warmup = plan.learning_rate, min(plan.warmup, plan.steps - 1)
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, warmup, plan.steps, peak / 100)
    step = optax.adamw(rate, b2=0.98, weight_decay=plan.weight_decay)
    return optax.chain(optax.clip_by_global_norm(1.0), step)


def several_steps(
    loss_of: Callable[[nnx.State, Any], jax.Array],
    optimizer: optax.GradientTransformation,
    plan: Plan,
    state: State,
    data: Any,
    length: int,
) -> tuple[State, jax.Array]:
    """The state after `length` steps, and the loss of each."""
    examples = len(jax.tree.leaves(data)[0])

    def step(state: State, _: None) -> tuple[State, jax.Array]:
        key = jax.random.fold_in(jax.random.key(plan.seed), state.step)
        drawn = jax.random.randint(key, (plan.batch,), 0, examples)
        batch = jax.tree.map(lambda x: x[drawn], data)
        loss, gradient = jax.value_and_grad(loss_of)(state.params, batch)
        updates, memory = optimizer.update(gradient, state.optimizer, state.params)
        params = cast(nnx.State, optax.apply_updates(state.params, updates))
        return State(state.step + 1, params, memory), loss

    return jax.lax.scan(step, state, length=length)


def loop(advance: Callable[..., Any], state: State, plan: Plan, folder: Path, about: str) -> State:
    """All steps that are left, with a bar, metrics and checkpoints."""
    step = int(state.step)
    with interruption() as interrupted, progress_bar() as bar:
        task = bar.add_task(about, total=plan.steps, completed=step, loss=np.nan, rate=0)
        while step < plan.steps and not interrupted.is_set():
            began = time.perf_counter()
            length = min(CHUNK - step % CHUNK, plan.steps - step)
            state, chunk = advance(state=state, length=length)
            losses = np.asarray(chunk)
            lines = [{"step": step + i, "loss": float(x)} for i, x in enumerate(losses, 1)]
            run_folder.append(folder, lines)
            step += length
            rate = length / (time.perf_counter() - began)
            bar.update(task, completed=step, loss=float(losses.mean()), rate=rate)
            if step % EVERY == 0 or step == plan.steps:
                run_folder.save(folder, state)
        leave_if(interrupted, folder, state)
    return state


def progress_bar() -> Progress:
    """A bar with the loss and the steps per second."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("{task.fields[rate]:.1f} steps/s"),
        TimeRemainingColumn(),
    )


def identity(module: nnx.Module, data: Any, plan: Plan) -> dict[str, Any]:
    """What makes two runs the same: the plan, the first parameters and the examples."""
    digest = hashlib.sha256()
    for leaf in [*jax.tree.leaves(nnx.state(module, nnx.Param)), *jax.tree.leaves(data)]:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return {**plan._asdict(), "start and data": digest.hexdigest()}


def begin(base: Path, same: dict[str, Any], state: State) -> tuple[Path, State]:
    """The folder to write into, and the state to begin with."""
    for folder in places(base):
        if is_unfinished(folder, same):
            state = run_folder.restore(folder, state)
            run_folder.forget_after(folder, int(state.step))
            Console().print(f"{folder} goes on at step {int(state.step)}", soft_wrap=True)
            return folder, state
    folder = run_folder.free(base)
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(json.dumps(same, indent=2) + "\n", encoding="utf-8")
    return folder, state


def is_unfinished(folder: Path, same: dict[str, Any]) -> bool:
    """Whether a run of this identity has a checkpoint, and its experiment has not ended."""
    recipe = folder / "recipe.json"
    if not recipe.is_file() or json.loads(recipe.read_text(encoding="utf-8")) != same:
        return False
    if (folder / "finished").exists():
        return False
    with run_folder.manager(folder) as checkpoints:
        return checkpoints.latest_step() is not None


def finish(bases: Iterable[Path]) -> None:
    """Say that an experiment has ended: the next one trains anew."""
    for base in bases:
        for folder in places(base):
            (folder / "finished").touch()


def places(base: Path) -> list[Path]:
    """The folders of this name that exist: itself, and those that were started beside it."""
    return [path for path in [base, *base.parent.glob(f"{base.name}-*")] if path.is_dir()]


def losses(folder: Path) -> np.ndarray:
    """The loss of each step of the newest run that was kept in this folder or beside it."""
    newest = max(places(folder), key=lambda path: (path / "metrics.jsonl").stat().st_mtime)
    return np.array([line["loss"] for line in run_folder.metrics(newest)])
