"""Checks of caches and of generation, without maths."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxattn._precision import known
from jaxattn._typing import Array
from jaxattn.masks import SlidingWindow
from jaxattn.masks._base import And


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


def same_batch(inputs: Array, length: Array) -> None:
    """Inputs and cache have the same batch axes."""
    if inputs.shape[:-2] != length.shape:
        raise ValueError(
            f"inputs [*B, T, D] and the cache must share *B, got {list(inputs.shape[:-2])} and "
            f"{list(length.shape)}; make the cache with init_cache(batch={inputs.shape[:-2]}, ...)"
        )


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
    if type(mask) is SlidingWindow:
        return None if mask.left is None else mask.left + 1
    if type(mask) is And:
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
