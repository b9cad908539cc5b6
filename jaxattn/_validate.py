"""Checks at the public door, without maths: what came, what was expected, what to do.

Everything inside the library assumes valid input. Functions here return their arrays as JAX
arrays, so that a NumPy array is converted once and its dtype is the one computed with.
"""

import operator
from typing import Any

import jax.numpy as jnp

from jaxattn._typing import Array

LAYOUT_HINT = (
    "the layout is [*B, T, N, H], tokens before heads; from [*B, N, T, H] use "
    "jnp.swapaxes(x, -2, -3)"
)


def array(name: str, x: Any, letters: str, fix: str | None = None) -> Array:
    """x as a JAX array; a TypeError where it is no array, with the likely `fix`."""
    if isinstance(x, type) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        got = f"the class {x.__name__}" if isinstance(x, type) else type(x).__name__
        fix = fix or f"convert it with jnp.asarray({name})"
        raise TypeError(f"{name} must be an array {letters}, got {got}; {fix}")
    return jnp.asarray(x)


def floating(name: str, x: Any, letters: str, fix: str | None = None) -> Array:
    """x as a JAX array of real floating dtype."""
    x = array(name, x, letters, fix)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{name} must be a floating array {letters}, got {x.dtype}{list(x.shape)}; "
            f"cast it, for example {name}.astype(jnp.float32)"
        )
    return x


def integers(name: str, x: Any, letters: str) -> Array:
    """x as a JAX array of integer dtype."""
    x = array(name, x, letters)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(
            f"{name} must be an integer array {letters}, got {x.dtype}{list(x.shape)}; "
            f"cast it, for example {name}.astype(jnp.int32)"
        )
    return x


def minimum_rank(name: str, x: Any, rank: int, letters: str) -> None:
    """At least `rank` axes."""
    if x.ndim < rank:
        raise ValueError(
            f"{name} must be {letters} with at least {rank} axes, got shape {list(x.shape)}; "
            "add the missing axis, for example with jnp.expand_dims"
        )


def same_dtype(**arrays: Array) -> None:
    """One dtype for all: the result's precision is never a guess."""
    dtypes = {name: str(x.dtype) for name, x in arrays.items()}
    if len(set(dtypes.values())) > 1:
        found = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        first = next(iter(dtypes))
        raise TypeError(
            f"{', '.join(dtypes)} must share one dtype, got {found}; cast them, for example to "
            f"{first}.dtype with .astype({first}.dtype)"
        )


def equal_axis(axes: dict[str, int], letter: str, hint: str = "") -> None:
    """Axes that carry one letter have one size."""
    if len(set(axes.values())) > 1:
        found = ", ".join(f"{name} has {letter} = {size}" for name, size in axes.items())
        raise ValueError(f"{letter} must agree: {found}{'; ' + hint if hint else ''}")


def projection(x: Any, weight: Any, bias: Any) -> tuple[Array, Array, Array | None]:
    """Arguments of `project`."""
    x = floating("x", x, "[*B, T, D]")
    weight = floating("weight", weight, "[D, F]")
    minimum_rank("x", x, 1, "[*B, T, D]")
    if weight.ndim != 2:
        raise ValueError(
            f"weight must be [D, F], got shape {list(weight.shape)}; per-head weights "
            "[D, N, H] are reshaped to [D, N * H] and their result given to split_heads"
        )
    same_dtype(x=x, weight=weight)
    hint = "weight is [inputs, outputs]; a torch weight needs its transpose, weight.T"
    equal_axis({"x": x.shape[-1], "weight": weight.shape[0]}, "D", hint)
    if bias is None:
        return x, weight, None
    bias = floating("bias", bias, "[F]")
    same_dtype(x=x, bias=bias)
    if bias.shape != weight.shape[1:]:
        raise ValueError(
            f"bias must be [F] = [{weight.shape[1]}] for weight {list(weight.shape)}, "
            f"got shape {list(bias.shape)}"
        )
    return x, weight, bias


def heads_divide(x: Any, heads: Any) -> Array:
    """`heads` is a positive integer that divides the last axis of x."""
    x = array("x", x, "[*B, T, N*H]")
    minimum_rank("x", x, 2, "[*B, T, N*H]")
    if integer("heads", heads) < 1 or x.shape[-1] % heads:
        raise ValueError(
            f"heads must be a positive divisor of the last axis of x [*B, T, N*H], got heads = "
            f"{heads} for shape {list(x.shape)}; {x.shape[-1]} = N * H must hold for a whole H"
        )
    return x


def integer(name: str, x: Any) -> int:
    """A Python integer (or what converts to one without loss)."""
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {x!r} ({type(x).__name__})") from None


def rate(name: str, x: Any) -> float:
    """A share in [0, 1), known before the program runs."""
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(
            f"{name} must be a Python number (it is static), got {x!r} ({type(x).__name__})"
        )
    if not 0 <= x < 1:
        raise ValueError(
            f"{name} must be at least 0 and below 1, got {x}; it is the share that is dropped"
        )
    return float(x)


def query_and_key(query: Any, key: Any) -> tuple[Array, Array]:
    """Arguments of `attention_scores`."""
    query = floating("query", query, "[..., T, H]")
    key = floating("key", key, "[..., S, H]")
    minimum_rank("query", query, 2, "[..., T, H]")
    minimum_rank("key", key, 2, "[..., S, H]")
    same_dtype(query=query, key=key)
    hint = "query [..., T, H] and key [..., S, H] meet in the head size H"
    equal_axis({"query": query.shape[-1], "key": key.shape[-1]}, "H", hint)
    return query, key


def score_mod_result(result: Any, scores: Array) -> None:
    """`score_mod` is elementwise: shape and floating dtype stay."""
    shape, dtype = jnp.shape(result), jnp.result_type(result)
    if shape != scores.shape or not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"score_mod must return floating scores of the shape it was given, [*B, N, t, s] = "
            f"{list(scores.shape)}, got {dtype}{list(shape)}; per-head numbers need the shape "
            "[N, 1, 1], and a mask belongs into mask="
        )


def pair_result(name: str, x: Any, batch: tuple, heads: tuple, rows: int, columns: int) -> Array:
    """What a mask or a bias function gave for pairs: `[*B, N, t, s]` with broadcasting ones.

    `heads` are the sizes its head axis may have. Missing axes in front are added.
    """
    if name == "bias" and not jnp.issubdtype(jnp.result_type(x), jnp.floating):
        raise TypeError(
            f"{name} must give floating numbers, got {jnp.result_type(x)}; cast them with "
            ".astype(jnp.float32), or say who may attend to whom as mask="
        )
    sizes = (*((1, size) for size in batch), (1, *heads), (1, rows), (1, columns))
    shape = jnp.shape(x)
    padded = (1,) * (len(sizes) - len(shape)) + shape
    if len(padded) != len(sizes) or not all(a in b for a, b in zip(padded, sizes, strict=True)):
        expected = [*batch, heads[0], rows, columns]
        raise ValueError(
            f"{name} must give [*B, N, t, s] = {expected} with broadcasting ones (heads also K = "
            f"{heads[-1]}), got shape {list(shape)}; positions come as [*B, 1, t, 1] and "
            "[*B, 1, 1, s], so numbers per head need the shape [N, 1, 1]"
        )
    return jnp.reshape(x, padded)


def scores_and_mask(scores: Any, mask: Any) -> tuple[Array, Array | None]:
    """Arguments of `attention_weights`."""
    scores = floating("scores", scores, "[..., T, S]")
    minimum_rank("scores", scores, 2, "[..., T, S]")
    if mask is None:
        return scores, None
    mask = boolean_mask(mask, "[..., T, S]")
    try:
        fits = jnp.broadcast_shapes(mask.shape, scores.shape) == scores.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask must broadcast against scores [..., T, S] = {list(scores.shape)}, "
            f"got shape {list(mask.shape)}; insert axes of 1 where it repeats"
        )
    return scores, mask


def boolean_mask(mask: Any, letters: str) -> Array:
    """A boolean array; a float mask belongs into `bias`."""
    fix = None
    if isinstance(mask, type | str | bool):
        name = mask.__name__ if isinstance(mask, type) else "Causal"
        fix = f"masks of jaxattn.masks are made by a call, as {name}(...)"
    elif hasattr(mask, "dense"):
        fix = "as an array it is mask.dense(T, S)"
    mask = array("mask", mask, letters, fix)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"mask must be boolean {letters} with True = takes part, got {mask.dtype}"
            f"{list(mask.shape)}; what is added to scores (0 and -inf) goes into bias=, and 0/1 "
            "integers become a mask with mask.astype(bool)"
        )
    return mask


def weights_and_value(weights: Any, value: Any) -> tuple[Array, Array]:
    """Arguments of `weighted_sum`."""
    weights = floating("weights", weights, "[..., T, S]")
    value = floating("value", value, "[..., S, Hv]")
    minimum_rank("weights", weights, 2, "[..., T, S]")
    minimum_rank("value", value, 2, "[..., S, Hv]")
    hint = "weights [..., T, S] and value [..., S, Hv] meet in the keys S"
    equal_axis({"weights": weights.shape[-1], "value": value.shape[-2]}, "S", hint)
    return weights, value
