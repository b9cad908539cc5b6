"""A run's folder: its recipe, its metrics, its checkpoints.

recipe.json       what the run is made of, with a fingerprint of its text
metrics.jsonl     {"step", "loss"} for each step, {"step", "validation"} now and then
checkpoints/      the newest two, by orbax
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from experiments.training import Recipe, State


def start(folder: Path, recipe: Recipe, data: bytes) -> None:
    """Make the folder of a new run.

    Raises:
      FileExistsError: there is one, which would be lost.
    """
    if folder.exists():
        raise FileExistsError(
            f"{folder} exists: --resume continues that run, another --name starts a new one"
        )
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(json.dumps(identity(recipe, data), indent=2) + "\n")


def check_same(folder: Path, recipe: Recipe, data: bytes) -> None:
    """Raise unless the folder holds a run of this recipe on this text.

    Raises:
      FileNotFoundError: there is no run.
      ValueError: it differs; the message names where.
    """
    path = folder / "recipe.json"
    if not path.is_file():
        raise FileNotFoundError(f"--resume found no run in {folder}; without it a run starts there")
    stored, given = json.loads(path.read_text()), identity(recipe, data)
    differing = [name for name in given if stored.get(name) != given[name]]
    if differing:
        was = ", ".join(f"{name}={stored.get(name)!r}" for name in differing)
        now = ", ".join(f"{name}={given[name]!r}" for name in differing)
        raise ValueError(
            f"--resume continues {folder} as it began, with {was}; got {now}: give the options it "
            "began with, or start another run by another --name"
        )


def identity(recipe: Recipe, data: bytes) -> dict[str, Any]:
    """What makes two runs the same."""
    return {**recipe._asdict(), "text": hashlib.sha256(data).hexdigest()}


def free(folder: Path) -> Path:
    """The folder, or its name with the first number that nobody has taken."""
    number, candidate = 2, folder
    while candidate.exists():
        number, candidate = number + 1, folder.with_name(f"{folder.name}-{number}")
    return candidate


def manager(folder: Path) -> ocp.CheckpointManager:
    """orbax's manager of the run's checkpoints; close it after use."""
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    return ocp.CheckpointManager((folder / "checkpoints").absolute(), options=options)


def save(folder: Path, state: State) -> None:
    """Write the state as a checkpoint, and return when it is on disk."""
    with manager(folder) as checkpoints:
        step = int(state.step)
        if checkpoints.latest_step() != step:
            checkpoints.save(step, args=ocp.args.StandardSave(state._asdict()))


def restore(folder: Path, like: State) -> State:
    """The newest checkpoint, in the structure of `like`.

    Raises:
      FileNotFoundError: the run has no checkpoint.
    """
    with manager(folder) as checkpoints:
        step = checkpoints.latest_step()
        if step is None:
            raise FileNotFoundError(
                f"--resume found no checkpoint in {folder / 'checkpoints'}; delete the folder or "
                "choose another --name to start anew"
            )
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, like._asdict())
        stored = checkpoints.restore(step, args=ocp.args.StandardRestore(target))
    # Placed as a new run's arrays are, not pinned to a device: the same program runs on.
    return State(**jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), stored))


def append(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Add lines to metrics.jsonl."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; none if there is no such file."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def forget_after(folder: Path, step: int) -> None:
    """Drop metrics of steps after a checkpoint: the resumed run will write them again."""
    kept = [line for line in metrics(folder) if line["step"] <= step]
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    append(folder, kept)
