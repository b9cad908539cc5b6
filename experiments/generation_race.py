"""Ways to continue one prompt, in turns: ours, recomputing everything, PyTorch's loops.

All have the same weights and write whole continuations greedily, the prompt included in the time.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from rich.progress import track

from experiments import torch_generation
from experiments.report import Claim
from experiments.torch_generation import GROWN, STATIC, Writer
from jaxattn import interop
from jaxattn.nn import LanguageModel, generate

VOCABULARY = 256
OURS = "jaxattn.nn.generate"
AGAIN = "everything recomputed"


class Setting(NamedTuple):
    """A model, a prompt, and how many tokens follow."""

    width: int
    layers: int
    heads: int
    prompt: int
    steps: int

    def __str__(self) -> str:
        return f"width {self.width}, {self.layers} layers, {self.prompt} + {self.steps} tokens"


class Race(NamedTuple):
    """Seconds of each turn and the tokens, by contestant; how far PyTorch's logits are off.

    `threads` are those of PyTorch with which it was faster; without PyTorch there are none.
    """

    seconds: dict[str, list[float]]
    tokens: dict[str, np.ndarray]
    threads: dict[str, int]
    difference: float | None

    def tokens_per_second(self) -> dict[str, float]:
        """The median over turns."""
        steps = len(self.tokens[OURS])
        return {name: steps / statistics.median(x) for name, x in self.seconds.items()}

    def ratios(self) -> dict[str, float]:
        """Our tokens per second over the others': the median of each turn's ratio."""
        ours = self.seconds[OURS]
        return {
            name: statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
            for name, theirs in self.seconds.items()
            if name != OURS
        }

    def same_tokens(self) -> bool:
        """Whether all wrote the same."""
        return all(bool((x == self.tokens[OURS]).all()) for x in self.tokens.values())


def race(setting: Setting, turns: int) -> Race:
    """All contestants warm up, then take turns."""
    model = make_model(setting)
    prompt = np.random.default_rng(0).integers(0, VOCABULARY, setting.prompt).astype(np.int32)
    calls, threads = contestants(model, setting, prompt), {}
    arrays = interop.save(model, interop.GPT2)
    writer = torch_generation.writer(arrays, setting.heads, prompt, setting.steps)
    if writer is not None:
        threads = {name: writer.best_threads(name) for name in (GROWN, STATIC)}
        calls |= {name: torch_call(writer, name, count) for name, count in threads.items()}
    tokens = {name: call() for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in track(range(turns), description=str(setting)):
        for name, call in calls.items():
            seconds[name].append(timed(call))
    off = None if writer is None else difference(model, prompt, writer.write(GROWN, 1))
    return Race(seconds, tokens, threads, off)


def torch_call(writer: Writer, name: str, threads: int) -> Callable[[], np.ndarray]:
    """A contestant of PyTorch's."""
    return lambda: writer.write(name, threads).tokens


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def make_model(setting: Setting) -> LanguageModel:
    """GPT-2's arrangement; random parameters, and a head of its own, so that tokens vary."""

    def make() -> LanguageModel:
        shape = (VOCABULARY, setting.width, setting.layers, setting.heads)
        context = setting.prompt + setting.steps
        return LanguageModel(*shape, context, tied=False, rngs=nnx.Rngs(0))

    return nnx.jit(make)()


def contestants(
    model: LanguageModel, setting: Setting, prompt: np.ndarray
) -> dict[str, Callable[[], np.ndarray]]:
    """Our functions that write `[steps]` tokens."""
    steps, given = setting.steps, jnp.asarray(prompt)
    return {
        OURS: lambda: np.asarray(generate(model, given, steps=steps).tokens),
        AGAIN: recomputing(model, prompt, steps),
    }


def recomputing(model: LanguageModel, prompt: np.ndarray, steps: int) -> Callable[[], np.ndarray]:
    """Each token from all before it, in one compiled function of full length."""
    graph, state = nnx.split(model)

    @jax.jit
    def step(state: Any, tokens: jax.Array, last: jax.Array) -> jax.Array:
        token = jnp.argmax(nnx.merge(graph, state)(tokens)[last]).astype(tokens.dtype)
        return tokens.at[last + 1].set(token)

    def write() -> np.ndarray:
        tokens = jnp.asarray(np.concatenate([prompt, np.zeros(steps, prompt.dtype)]))
        for i in range(steps):
            tokens = step(state, tokens, jnp.int32(len(prompt) + i - 1))
        return np.asarray(tokens)[len(prompt) :]

    return write


def difference(model: LanguageModel, prompt: np.ndarray, theirs: torch_generation.Written) -> float:
    """The largest difference between PyTorch's logits and ours for the tokens that it wrote."""
    written = np.concatenate([prompt, theirs.tokens[:-1].astype(prompt.dtype)])
    ours = nnx.jit(lambda model, tokens: model(tokens))(model, jnp.asarray(written))
    return float(np.abs(np.asarray(ours)[len(prompt) - 1 :] - theirs.logits).max())


def claims(races: dict[Setting, Race]) -> list[Claim]:
    """The same tokens from all, and the same logits from PyTorch where it took part."""
    found = []
    for setting, race in races.items():
        same = race.same_tokens()
        found.append(
            Claim(
                claim=f"the same tokens from {', '.join(race.tokens)}: {setting}",
                expected=f"{setting.steps} of {setting.steps}",
                measured="the same" if same else "different",
                holds=same,
            )
        )
        if race.difference is not None:
            found.append(
                Claim(
                    claim=f"largest difference of a logit, PyTorch's and ours: {setting}",
                    expected="at most 1e-4",
                    measured=race.difference,
                    holds=race.difference <= 1e-4,
                )
            )
    return found


def numbers(races: dict[Setting, Race]) -> dict[str, Any]:
    """Tokens per second of whole continuations, and ours over the others'."""
    found: dict[str, Any] = {}
    for setting, race in races.items():
        speeds, ratios = race.tokens_per_second(), race.ratios()
        found[f"tokens per second, prompt included: {setting}"] = {
            name: round(speed, 1) for name, speed in speeds.items()
        }
        found[f"{OURS}'s tokens per second over others': {setting}"] = {
            name: round(ratio, 2) for name, ratio in ratios.items()
        }
        found[f"PyTorch's threads: {setting}"] = race.threads or "PyTorch is not installed"
    return found
