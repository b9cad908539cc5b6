"""Checks of module arguments, without maths. What functions check, they check themselves."""

import math
import numbers
from typing import Any

from jaxattn import _validate
from jaxattn._typing import Array
from jaxattn.masks import Mask


def positive(**sizes: Any) -> None:
    """Every size is a positive integer."""
    for name, size in sizes.items():
        if _validate.integer(name, size) < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def divides(part_name: str, part: int, whole_name: str, whole: int, why: str) -> None:
    """`part` divides `whole`."""
    positive(**{part_name: part, whole_name: whole})
    if whole % part:
        raise ValueError(
            f"{whole_name} = {whole} must be a multiple of {part_name} = {part}: {why}"
        )


def choice(name: str, x: Any, choices: tuple[str, ...]) -> str:
    """One of the names."""
    if x not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {x!r}")
    return x


def number(name: str, x: Any) -> float:
    """A finite number that is known before the program runs."""
    if isinstance(x, bool) or not isinstance(x, numbers.Real):
        raise TypeError(
            f"{name} must be a Python number (it is static), got {x!r} ({type(x).__name__})"
        )
    if not math.isfinite(x):
        raise ValueError(f"{name} must be finite, got {x}")
    return float(x)


def tokens_of_width(name: str, x: Any, width: int, argument: str) -> Array:
    """`[*B, T, D]` with the D that the module was made for."""
    x = _validate.floating(name, x, "[*B, T, D]")
    _validate.minimum_rank(name, x, 2, "[*B, T, D]")
    if x.shape[-1] != width:
        raise ValueError(
            f"{name} must be [*B, T, D] with D = {argument} = {width}, got shape "
            f"{list(x.shape)}; features are the last axis"
        )
    return x


def features(x: Any, **vectors: Any) -> Array:
    """`[*B, D]`, and `[D]` or None for each feature's own number."""
    x = _validate.floating("x", x, "[*B, D]")
    _validate.minimum_rank("x", x, 1, "[*B, D]")
    for name, vector in vectors.items():
        if vector is not None and _validate.floating(name, vector, "[D]").shape != x.shape[-1:]:
            raise ValueError(
                f"{name} must be [D] = {list(x.shape[-1:])} for x [*B, D] = {list(x.shape)}, got "
                f"shape {list(vector.shape)}; features are the last axis"
            )
    return x


def token_ids(tokens: Any) -> Array:
    """Integers `[*B, T]`."""
    tokens = _validate.integers("tokens", tokens, "[*B, T]")
    _validate.minimum_rank("tokens", tokens, 1, "[*B, T]")
    return tokens


def deterministic(*choices: bool | None) -> bool:
    """The first choice that was made, or an error that says how to make one."""
    for chosen in choices:
        if isinstance(chosen, bool):
            return chosen
        if chosen is not None:
            raise TypeError(
                "deterministic must be True or False before the program is compiled, got "
                f"{chosen!r}; name it in static_argnames of nnx.jit, or call model.train() or "
                "model.eval() instead"
            )
    raise ValueError(
        "dropout_rate is above 0, and nobody said whether this is training; call model.train() or "
        "model.eval() once, or pass deterministic="
    )


def rotary_fits(rotary: Any, head_size: int) -> None:
    """As many features as are turned there are, in pairs."""
    size = head_size if rotary is None or rotary.size is None else rotary.size
    if rotary is not None and (size % 2 or not 0 <= size <= head_size):
        raise ValueError(
            f"rotary turns pairs of features, and cannot turn {size} of a head of H = {head_size} "
            "features; choose an even head size (qkv_features / num_heads), or a Rotary(size=...) "
            "that is even and not larger"
        )


def counted(inputs_q: Array, inputs_k: Array) -> None:
    """Tokens that can be counted without a doubt about where both sides begin."""
    if inputs_q.shape[-2] != inputs_k.shape[-2]:
        raise ValueError(
            f"rotary needs positions for T = {inputs_q.shape[-2]} queries and S = "
            f"{inputs_k.shape[-2]} keys: nothing says where they stand to each other; pass "
            "positions and key_positions"
        )


def positional(name: str, x: Any, kind: type, hint: str) -> None:
    """None or a function of positions, where an array would have no meaning."""
    if x is not None and not isinstance(x, kind):
        raise TypeError(
            f"{name} must be a {kind.__name__} of jaxattn, which is a function of positions, got "
            f"{type(x).__name__}; with a cache tokens have positions and no fixed places: wrap an "
            f"array as {hint}"
        )


def one_mask(given: Any, own: Mask | None) -> Any:
    """The call's mask and the layer's own."""
    if own is None or given is None:
        return own if given is None else given
    positional("mask", given, Mask, "jaxattn.masks.Dense(array): this layer has a mask of its own")
    return given & own


def one_bias(given: Any, own: Any) -> Any:
    """The call's bias or the layer's own."""
    if own is None:
        return given
    if given is not None:
        raise ValueError(
            "bias was given, and the layer has one of its own (Scoring.bias); give one that has "
            "both, as a function of positions"
        )
    return own()


def stack_or_sizes(stack: Any, width: int, **sizes: Any) -> None:
    """Either a finished stack of this width, or the sizes of one."""
    if stack is None:
        positive(**sizes)
        return
    given = [name for name, size in sizes.items() if size is not None]
    if given:
        raise ValueError(f"{', '.join(given)} were given beside a stack, which has its own")
    if stack.width != width:
        raise ValueError(f"stack must be of width D = {width}, got {stack.width}")
