"""A GPT-2 in PyTorch that goes on from a prompt as `transformers` does: for `generation_race`.

A Python loop over tokens, each a pass through the layers with `scaled_dot_product_attention`, under
`inference_mode`; keys and values so far are kept. Weights are a dictionary of arrays, as
`jaxattn.interop.save(model, GPT2)` writes it.
"""

import importlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

GROWN, STATIC = "PyTorch, cache by torch.cat", "PyTorch, static cache"
EPSILON = 1e-6  # of jaxattn's LayerNorm; a GPT-2 in `transformers` says 1e-5


class Written(NamedTuple):
    """New tokens `[steps]`, and the logits `[steps, V]` from which they were taken."""

    tokens: np.ndarray
    logits: np.ndarray


class Grown:
    """Keys and values of one layer, with `torch.cat` for each token: the cache by default."""

    def __init__(self):
        self.key: Any = None
        self.value: Any = None

    def after(self, torch: Any, key: Any, value: Any) -> tuple[Any, Any]:
        """All keys and values `[1, N, S, H]`, the new ones included."""
        if self.key is not None:
            key, value = torch.cat([self.key, key], -2), torch.cat([self.value, value], -2)
        self.key, self.value = key, value
        return key, value


class Filled:
    """The same in arrays of full length, made once and written in place: the static cache."""

    def __init__(self, length: int):
        self.capacity, self.length = length, 0
        self.key: Any = None
        self.value: Any = None

    def after(self, torch: Any, key: Any, value: Any) -> tuple[Any, Any]:
        """All keys and values `[1, N, S, H]`, the new ones included: a view."""
        if self.key is None:
            shape = (*key.shape[:2], self.capacity, key.shape[-1])
            self.key, self.value = torch.empty(shape), torch.empty(shape)
        start, self.length = self.length, self.length + key.shape[-2]
        self.key[:, :, start : self.length] = key
        self.value[:, :, start : self.length] = value
        return self.key[:, :, : self.length], self.value[:, :, : self.length]


class Writer(NamedTuple):
    """PyTorch with weights, a prompt `[T]`, how many tokens to write, and how many cores."""

    torch: Any
    weights: Mapping[str, Any]
    heads: int
    prompt: np.ndarray
    steps: int
    cores: int

    def write(self, name: str, threads: int) -> Written:
        """With a cache that grows or a static one."""
        self.torch.set_num_threads(threads)
        given = self.torch, self.weights, self.heads, self.prompt, self.steps
        return write(*given, static=name == STATIC)

    def best_threads(self, name: str) -> int:
        """One thread or all: small layers do not pay for more, and less so on busy machines."""
        seconds = {}
        for threads in {1, self.cores}:
            self.write(name, threads)
            start = time.perf_counter()
            self.write(name, threads)
            seconds[threads] = time.perf_counter() - start
        return min(seconds, key=seconds.__getitem__)


def writer(
    arrays: Mapping[str, np.ndarray], heads: int, prompt: np.ndarray, steps: int
) -> Writer | None:
    """A writer with these weights, or None where PyTorch is not installed."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    weights = {name: torch.tensor(x) for name, x in arrays.items()}
    return Writer(torch, weights, heads, prompt, steps, torch.get_num_threads())


def write(
    torch: Any,
    weights: Mapping[str, Any],
    heads: int,
    prompt: np.ndarray,
    steps: int,
    static: bool = False,
) -> Written:
    """The likeliest token each time, after a prompt `[T]`."""
    layers = sum(name.endswith("ln_1.weight") for name in weights)
    length = len(prompt) + steps - 1
    caches = [Filled(length) if static else Grown() for _ in range(layers)]
    tokens, logits = [], []
    with torch.inference_mode():
        new, place = torch.tensor(prompt, dtype=torch.int64)[None], 0
        for _ in range(steps):
            logits.append(next_logits(torch, weights, heads, new, place, caches))
            place += new.shape[-1]
            new = logits[-1].argmax(-1, keepdim=True)
            tokens.append(new)
        return Written(torch.cat(tokens, -1)[0].numpy(), torch.cat(logits, 0).numpy())


def next_logits(
    torch: Any, weights: Mapping[str, Any], heads: int, tokens: Any, place: int, caches: list[Any]
) -> Any:
    """Logits `[1, V]` of the token after these `[1, T]`, the first of which stands at `place`."""
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][place : place + tokens.shape[-1]]
    for i, cache in enumerate(caches):
        layer = f"h.{i}."
        normal = normalised(torch, x, weights, layer + "ln_1")
        x = x + attended(torch, normal, weights, layer + "attn.", heads, cache)
        normal = normalised(torch, x, weights, layer + "ln_2")
        hidden = linear(torch, normal, weights, layer + "mlp.c_fc")
        hidden = torch.nn.functional.gelu(hidden, approximate="tanh")
        x = x + linear(torch, hidden, weights, layer + "mlp.c_proj")
    return normalised(torch, x[:, -1], weights, "ln_f") @ weights["lm_head.weight"].T


def attended(
    torch: Any, x: Any, weights: Mapping[str, Any], name: str, heads: int, cache: Any
) -> Any:
    """Attention of new tokens `[1, T, D]` to themselves and to those in the cache."""
    projected = linear(torch, x, weights, name + "c_attn").chunk(3, dim=-1)
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in projected)
    key, value = cache.after(torch, key, value)
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(query, key, value, is_causal=query.shape[-2] > 1)
    return linear(torch, out.transpose(1, 2).flatten(-2), weights, name + "c_proj")


def linear(torch: Any, x: Any, weights: Mapping[str, Any], name: str) -> Any:
    """`X W + b` with W `[D, F]`, in one call."""
    flat = torch.addmm(weights[name + ".bias"], x.flatten(0, -2), weights[name + ".weight"])
    return flat.unflatten(0, x.shape[:-1])


def normalised(torch: Any, x: Any, weights: Mapping[str, Any], name: str) -> Any:
    """LayerNorm."""
    scale, bias = weights[name + ".weight"], weights[name + ".bias"]
    return torch.nn.functional.layer_norm(x, scale.shape, scale, bias, EPSILON)
