"""Adapters from the usual signatures to `f(query, key, value, mask=mask) -> out`.

    check_all(adapters.jax_nn())
    check_all(adapters.heads_first(my_function))

Nothing is imported before it is called for. `KNOWN` has the claims that go with well-known
functions, which is what the command line uses for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Function = Callable[..., Any]


class Known(NamedTuple):
    """How a well-known function is adapted, and which features it documents."""

    adapt: Callable[[Function], Function]
    supports: tuple[str, ...]


def four_axes(function: Function) -> Function:
    """For functions whose mask is [*B, N, T, S]: the mask gets axes of length 1 in front."""

    def attention(
        query: Array, key: Array, value: Array, mask: Array | None = None, **more: Any
    ) -> Array:
        if mask is not None:
            mask = jnp.reshape(mask, (1,) * (query.ndim - 2) + mask.shape)
        return function(query, key, value, mask=mask, **more)

    return attention


def heads_first(function: Function) -> Function:
    """For functions of `[*B, N, T, H]`: the token and head axes are exchanged and back."""

    def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        swapped = (jnp.swapaxes(array, -3, -2) for array in (query, key, value))
        return jnp.swapaxes(function(*swapped, mask=mask), -3, -2)

    return attention


def one_head(function: Function) -> Function:
    """For functions of one head and one example, `[T, H], [S, H], [S, Hv] -> [T, Hv]`."""

    def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        group = query.shape[-2] // key.shape[-2]
        key, value = (jnp.repeat(array, group, axis=-2) for array in (key, value))
        mapped = jax.vmap(functools.partial(function, mask=mask), in_axes=-2, out_axes=-2)
        for _ in range(query.ndim - 3):
            mapped = jax.vmap(mapped)
        return mapped(query, key, value)

    return attention


def one_example(function: Function) -> Function:
    """For functions of one example, `[T, N, H], [S, K, H], [S, K, Hv] -> [T, N, Hv]`."""

    def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        mapped = functools.partial(function, mask=mask)
        for _ in range(query.ndim - 3):
            mapped = jax.vmap(mapped)
        return mapped(query, key, value)

    return attention


def additive_mask(function: Function, low: float = -np.inf) -> Function:
    """For functions that take `bias=`, not a mask: 0 where allowed, `low` elsewhere."""

    def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        if mask is None:
            return function(query, key, value, bias=None)
        zero = jnp.zeros((), query.dtype)
        return function(
            query, key, value, bias=jnp.where(mask, zero, jnp.asarray(low, query.dtype))
        )

    return attention


def with_partial(attention: Function, partial_attention: Function) -> Function:
    """For a pair of functions, of which the second returns (out, lse): one with `returns_lse`."""

    def both(*arrays: Array, returns_lse: bool = False, **keywords: Any) -> Any:
        if not returns_lse:
            return attention(*arrays, **keywords)
        out, lse = partial_attention(*arrays, **keywords)
        return out, lse

    return both


def jax_nn(**options: Any) -> Function:
    """`jax.nn.dot_product_attention` with these options."""
    return four_axes(functools.partial(jax.nn.dot_product_attention, **options))


def flax_nnx(**options: Any) -> Function:
    """`flax.nnx.dot_product_attention` with these options."""
    from flax import nnx

    return four_axes(functools.partial(nnx.dot_product_attention, **options))


def flax_linen(**options: Any) -> Function:
    """`flax.linen.dot_product_attention` with these options."""
    from flax import linen

    return four_axes(functools.partial(linen.dot_product_attention, **options))


def tokamax(**options: Any) -> Function:
    """`tokamax.dot_product_attention` with these options."""
    import tokamax

    return four_axes(functools.partial(tokamax.dot_product_attention, **options))


KNOWN = {
    "jax.nn:dot_product_attention": Known(
        four_axes, ("bias", "scale", "-value_head_size", "-batch_axes")
    ),
    "flax.nnx:dot_product_attention": Known(four_axes, ("bias", "-gqa", "-value_head_size")),
    "flax.linen:dot_product_attention": Known(four_axes, ("bias", "-gqa")),
    "tokamax:dot_product_attention": Known(
        four_axes, ("bias", "-batch_axes", "-jvp", "-second_order")
    ),
}
