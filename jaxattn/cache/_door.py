"""Checks of what goes into a cache, without maths. Letters: see `jaxattn._typing`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from jaxattn import _validate
from jaxattn._typing import Array


def valid_tokens(valid: Any, batch: tuple[int, ...], tokens: int) -> Array:
    """Booleans `[*B, T]`."""
    valid = _validate.array("valid", valid, "[T] or [*B, T]")
    if valid.dtype != jnp.bool_:
        raise TypeError(
            f"valid must be boolean [T] or [*B, T], True for tokens and False for padding, got "
            f"{valid.dtype}{list(valid.shape)}; from lengths [*B] it is "
            "jnp.arange(T) < lengths[..., None]"
        )
    if valid.shape not in ((tokens,), (*batch, tokens)):
        raise ValueError(
            f"valid must be [T] or [*B, T] = {[tokens]} or {[*batch, tokens]}, got shape "
            f"{list(valid.shape)}"
        )
    return jnp.broadcast_to(valid, (*batch, tokens))


def new_tokens(cache: Any, key: Any, value: Any) -> tuple[Array, Array]:
    """New keys and values that go with the cache."""
    arrays = {"key": (key, cache.key), "value": (value, cache.value)}
    found = []
    for name, (x, held) in arrays.items():
        x = _validate.floating(name, x, "[*B, T, K, H]")
        if x.ndim != held.ndim or x.shape[:-3] + x.shape[-2:] != held.shape[:-3] + held.shape[-2:]:
            expected = [*held.shape[:-3], "T", *held.shape[-2:]]
            raise ValueError(
                f"{name} must be {'[' + ', '.join(map(str, expected)) + ']'} for a cache with "
                f"{name} {list(held.shape)}, got shape {list(x.shape)}; make the cache for this "
                "batch and these heads"
            )
        if x.dtype != held.dtype:
            raise TypeError(
                f"{name} must have the cache's dtype {held.dtype}, got {x.dtype}; give init the "
                "dtype of the computation"
            )
        found.append(x)
    same_tokens(*found)
    return found[0], found[1]


def same_tokens(key: Array, value: Array) -> None:
    if key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            "key [*B, T, K, H] and value [*B, T, K, Hv] must agree but for the last axis, got "
            f"shapes {list(key.shape)} and {list(value.shape)}"
        )


def room(cache: Any, tokens: int, least: int, length: Array) -> None:
    """A ValueError where it is known before the program runs that tokens find no place.

    `least` of the tokens are no padding for sure; `length` is what examples have after them.
    """
    if cache.wraps:
        return
    known = not isinstance(length, Tracer)
    needed = int(jnp.max(length, initial=0)) if known else least
    if needed > cache.capacity:
        raise ValueError(
            f"the cache holds C = {cache.capacity} tokens, and after these {tokens} an example "
            f"has {needed}; make it larger, or let it forget the oldest with wraps=True"
        )


def sharded_alike(cache: Any, key: Array) -> Any:
    """The cache, on a mesh with explicit axes, sharded over batch and heads as new keys are."""
    spec = tuple(jax.typeof(key).sharding.spec)
    spec = spec + (None,) * (key.ndim - len(spec))
    if not any(spec):
        return cache
    batch = spec[:-3]
    held = jax.sharding.PartitionSpec(*batch, None, spec[-2], None)

    def moved(name: str, to: Any) -> Array:
        return jax.sharding.reshard(getattr(cache, name), to)

    return dataclasses.replace(
        cache,
        key=moved("key", held),
        value=moved("value", held),
        positions=moved("positions", jax.sharding.PartitionSpec(*batch, None)),
        length=moved("length", jax.sharding.PartitionSpec(*batch)),
    )
