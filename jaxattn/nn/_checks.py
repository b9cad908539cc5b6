"""Checks of module arguments, without maths. What functions check, they check themselves."""

import math
import numbers
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxattn import _validate
from jaxattn._precision import known
from jaxattn._typing import Array
from jaxattn.masks import Mask, SlidingWindow
from jaxattn.masks._base import And


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


def stop_token(stop: Any) -> int | None:
    """One token, known before the program runs, or None."""
    try:
        return None if stop is None else operator.index(stop)
    except TypeError:
        raise TypeError(
            f"stop must be one integer or None (it is static), got {stop!r} "
            f"({type(stop).__name__}); give the number of the token that ends a text"
        ) from None


def random_key(key: Any) -> None:
    """None or one key."""
    if key is None:
        return
    typed = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed and getattr(key, "dtype", None) != jnp.uint32:
        got = f"{key.dtype}{list(key.shape)}" if hasattr(key, "dtype") else f"{key!r}"
        raise TypeError(f"key must be a key of jax.random.key(seed), got {got}")
    if typed and key.shape:
        raise ValueError(f"key must be one key, got shape {list(key.shape)}; it serves all of *B")


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


def same_batch(inputs: Array, length: Array) -> None:
    """Inputs and cache have the same batch axes."""
    if inputs.shape[:-2] != length.shape:
        raise ValueError(
            f"inputs [*B, T, D] and the cache must share *B, got {list(inputs.shape[:-2])} and "
            f"{list(length.shape)}; make the cache with init_cache(batch={inputs.shape[:-2]}, ...)"
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


def window_fits(mask: Any, length: int) -> None:
    """A ring of `length` tokens holds all that the mask lets a query see."""
    seen = reach(mask)
    if seen is None or seen > length:
        raise ValueError(
            f"a ring of C = {length} tokens (wraps=True) needs a layer whose mask looks at most C "
            f"tokens back, itself included, got Scoring(mask={mask!r}); give it "
            f"SlidingWindow(left={length - 1}, right=0), or a cache that does not wrap"
        )


def reach(mask: Any) -> int | None:
    """How many tokens back a mask looks, the query's own included; None for no limit known."""
    if isinstance(mask, SlidingWindow):
        return None if mask.left is None else mask.left + 1
    if isinstance(mask, And):
        sides = [seen for side in mask.children() if (seen := reach(side)) is not None]
        return min(sides, default=None)
    return None


def context_is_due(context: Any, cross_attention: Any) -> None:
    """A context comes exactly where it is attended to."""
    if (context is None) != (cross_attention is None):
        raise ValueError(
            "context was given to a block without cross-attention; make it with cross_attention="
            if context is not None
            else "context is missing: this block attends to one; pass what an encoder made of it"
        )


def caches(cache: Any, layers: int, scan: bool) -> None:
    """One cache for each layer, or all in one where the layers are scanned."""
    hint = "make it with init_cache(batch, length) of this model"
    stacked = hasattr(cache, "own")
    if scan and not (stacked and cache.own.length.shape[-1:] == (layers,)):
        got = list(cache.own.length.shape) if stacked else type(cache).__name__
        raise ValueError(
            f"cache must be one BlockCache for all L = {layers} scanned layers, with length "
            f"[*B, L], got {got}; {hint}"
        )
    if not scan and (stacked or not isinstance(cache, tuple) or len(cache) != layers):
        listed = isinstance(cache, tuple) and not stacked
        got = len(cache) if listed else type(cache).__name__
        raise ValueError(
            f"cache must be a tuple of L = {layers} caches, one for each layer, got {got}; {hint}"
        )


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


def within_context(size: int, context: int | None, got: str) -> None:
    """Learned positions reach this far."""
    if context is not None and size > context:
        raise ValueError(
            f"tokens must be [*B, T] with T ≤ context = {context}, got {got}; cut them, "
            'make a model of larger context, or choose positions="sinusoidal"'
        )


def room(cache: Any, tokens: int, valid: Any) -> None:
    """So many more tokens find a place, as far as that is known before the program runs.

    In NumPy: JAX's sums of what is known become unknown inside of jit.
    """
    padding = 0 if valid is None or isinstance(valid, Tracer) else longest_padding(valid)
    blocks = (cache,) if hasattr(cache, "own") else cache
    for block in blocks if isinstance(blocks, tuple) else ():
        own = getattr(block, "own", None)
        if own is None or own.wraps or isinstance(own.length, Tracer):
            continue
        held = int(np.asarray(own.length).max(initial=0))
        if held + tokens - padding > own.capacity:
            raise ValueError(
                f"the cache holds C = {own.capacity} tokens, {held} of them taken, and prompt and "
                f"steps need {tokens - padding} more; make it with init_cache(batch, length) of "
                f"length {held + tokens - padding} or more"
            )


def tokens_to_read(valid: Any) -> None:
    """Every example has a token, as far as that is known before the program runs."""
    valid = known(valid)
    if valid is not None and not valid.any(axis=-1).all():
        raise ValueError(
            f"valid must be True for a token of each prompt, got valid {list(valid.shape)} with "
            "nothing but padding for an example; give it the token that starts a text"
        )


def longest_padding(valid: Any) -> int:
    """How many places of the example with the most tokens are padding."""
    valid = np.asarray(valid)
    return int(valid.shape[-1] - valid.sum(axis=-1).max(initial=0))
