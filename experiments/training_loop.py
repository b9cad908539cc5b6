"""The loop around the steps: progress, metrics, checkpoints, and Ctrl-C."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import jax.numpy as jnp
import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments import run_folder
from experiments.text import Text, validation_windows
from experiments.training import Compiled, Model, State, compiled, validate

CHUNK = 10  # steps in one dispatch: the host looks at losses, and at Ctrl-C, only this often
EVERY = 250  # steps from one validation and checkpoint to the next


def train(
    model: Model, state: State, text: Text, folder: Path, watch: Callable[[int], None] | None = None
) -> State:
    """Train to the recipe's last step, validating and saving on the way.

    Args:
      watch: is called with the number of steps after each chunk of them.

    Raises:
      KeyboardInterrupt: after Ctrl-C, when the state is saved.
    """
    recipe, functions = model.recipe, compiled(model)
    tokens = jnp.asarray(text.train)
    judge = judge_of(functions, text, recipe.context, recipe.batch)
    step = int(state.step)
    with interruption() as interrupted, progress_bar() as bar:
        task = bar.add_task("training", total=recipe.steps, completed=step, loss=np.nan, rate=0)
        while step < recipe.steps and not interrupted.is_set():
            began = time.perf_counter()
            length = chunk_length(step, recipe.steps)
            state, chunk = functions.advance(state=state, tokens=tokens, length=length)
            losses = np.asarray(chunk)
            rate = length * recipe.batch * recipe.context / (time.perf_counter() - began)
            record(folder, step, losses, rate)
            step += length
            bar.update(task, completed=step, loss=float(losses.mean()), rate=rate)
            if step % EVERY == 0 or step == recipe.steps:
                validation = judge(state)
                run_folder.append(folder, [{"step": step, "validation": validation}])
                bar.console.print(f"step {step:5d}   validation {validation:.4f} nats per byte")
                run_folder.save(folder, state)
            if watch is not None:
                watch(step)
        leave_if(interrupted, folder, state)
    return state


def chunk_length(step: int, steps: int) -> int:
    """Steps to the next multiple of CHUNK, of EVERY, or to the end."""
    return min(CHUNK - step % CHUNK, EVERY - step % EVERY, steps - step)


def judge_of(functions: Compiled, text: Text, context: int, batch: int) -> Callable[[State], float]:
    """A function from a state to its nats per byte on the whole validation text."""
    windows, counts = validation_windows(text, context, batch)
    return lambda state: validate(functions, state.params, windows, counts, batch)


def record(folder: Path, step: int, losses: np.ndarray, rate: float) -> None:
    """A line for each step; the last of a chunk says how fast it went."""
    lines: list[dict[str, float]] = [
        {"step": step + number, "loss": float(loss)} for number, loss in enumerate(losses, 1)
    ]
    lines[-1]["tokens_per_second"] = round(rate, 1)
    run_folder.append(folder, lines)


def leave_if(interrupted: threading.Event, folder: Path, state: State) -> None:
    """Save and raise KeyboardInterrupt, if there was one."""
    if interrupted.is_set():
        run_folder.save(folder, state)
        raise KeyboardInterrupt(f"saved {folder} at step {int(state.step)}")


@contextlib.contextmanager
def interruption() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that no step is torn apart; a second one stops at once."""
    event = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def progress_bar() -> Progress:
    """A bar with the loss and the tokens per second."""
    return Progress(
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
