"""A pretrained model continues a text here as it does in its own code.

glassllm carries two models of 0.85 million parameters (grouped heads, rotary positions, SwiGLU),
one trained on English books and one on Portuguese ones, and runs them in NumPy. Their weights, put
into `jaxattn.nn.LanguageModel`, give the same logits and write the same text, one token at a time
with a cache, compiled as one loop.

Command: python -m experiments generate --model glassllm --prompt "Alice was beginning to"
Minutes: 1
Expected: logits differ by at most 1e-4 (8.6e-6 on logits of up to 14); the likeliest tokens are
the same, all of them. Tokens per second are reported (1340 here, 220 in NumPy, on two busy cores)
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.pretrained import glass
from experiments.report import Claim, Result
from jaxattn.nn import generate

MODELS = {"glassllm": ("en", "Alice was beginning to"), "glassllm-pt": ("pt", "Capitu olhou para")}
DRAWN = dict(temperature=0.7, top_k=20)


class Written(NamedTuple):
    """What was written, and how fast."""

    tokens: np.ndarray
    per_second: float


def run(out: Path, quick: bool, model: str = "glassllm", prompt: str | None = None) -> Result:
    """Continue the prompt, the likeliest token each time and by drawing; compare with NumPy."""
    if model not in MODELS:
        raise ValueError(f"--model must be one of {', '.join(MODELS)}, got {model!r}")
    language, usual = MODELS[model]
    given = glass.load(language)
    prompt = usual if prompt is None else prompt
    tokens = np.array(given.tokenizer.encode(prompt), np.int32)
    steps = room(given, tokens, 16 if quick else 100)
    ours = written(lambda key: np.asarray(continued(given, tokens, steps)))
    drawn = written(lambda key: np.asarray(continued(given, tokens, steps, key=key, **DRAWN)))
    theirs = written(lambda key: reference(given, tokens, steps))
    texts = {
        "the likeliest tokens": prompt + given.tokenizer.decode(ours.tokens.tolist()),
        "drawn (temperature 0.7, top 20)": prompt + given.tokenizer.decode(drawn.tokens.tolist()),
    }
    speeds = {"here": round(ours.per_second, 1), "in NumPy": round(theirs.per_second, 1)}
    show(texts, speeds)
    same = int((ours.tokens == theirs.tokens).sum())
    return Result(
        claims=claims(largest_difference(given, tokens), same, steps),
        numbers={**texts, "tokens per second, compiled": speeds},
        figures=[],
    )


def room(given: glass.Pretrained, tokens: np.ndarray, wanted: int) -> int:
    """How many tokens to write: no more than the model's context has places for."""
    left = given.reference.cfg.max_len - len(tokens)
    if not 0 < len(tokens) or left < 1:
        raise ValueError(
            f"--prompt must have 1 to {given.reference.cfg.max_len - 1} tokens, got {len(tokens)}"
        )
    return min(wanted, left)


def continued(given: glass.Pretrained, tokens: np.ndarray, steps: int, **options: Any) -> jax.Array:
    """Tokens after the prompt, by our `generate`."""
    key = options.pop("key", None)
    return generate(given.model, jnp.asarray(tokens), steps=steps, key=key, **options).tokens


def reference(given: glass.Pretrained, tokens: np.ndarray, steps: int) -> np.ndarray:
    """Tokens after the prompt, by the package's own code, with its cache."""
    return np.array([x.token for x in given.reference.generate(tokens, steps, greedy=True)])


def written(write: Callable[[jax.Array], np.ndarray]) -> Written:
    """Tokens, timed after a run that compiles."""
    write(jax.random.key(0))
    start = time.perf_counter()
    tokens = write(jax.random.key(0))
    return Written(tokens, len(tokens) / (time.perf_counter() - start))


def largest_difference(given: glass.Pretrained, tokens: np.ndarray) -> float:
    """Of the prompt's logits, all tokens of the vocabulary."""
    ours = nnx.jit(lambda model, tokens: model(tokens))(given.model, jnp.asarray(tokens))
    return float(np.abs(ours - given.reference.forward(tokens).data[0]).max())


def show(texts: dict[str, str], speeds: dict[str, float]) -> None:
    """Print the texts, and tokens per second."""
    for name, text in texts.items():
        print(f"--- {name}\n{text}\n")
    print(f"{speeds['here']} tokens/s here, {speeds['in NumPy']} tokens/s in NumPy\n")


def claims(difference: float, same: int, steps: int) -> list[Claim]:
    """What the header says."""
    return [
        Claim(
            claim="largest difference of a logit to the package's own forward pass",
            expected="at most 1e-4",
            measured=difference,
            holds=bool(difference <= 1e-4),
        ),
        Claim(
            claim="likeliest tokens that are the package's own",
            expected=f"{steps} of {steps}",
            measured=f"{same} of {steps}",
            holds=same == steps,
        ),
    ]


if __name__ == "__main__":
    from experiments.__main__ import alone

    alone(__file__)
