"""Checks of module arguments, without maths. What functions check, they check themselves."""

from typing import Any

from jaxattn import _validate
from jaxattn._typing import Array


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
