"""The caches of L equal blocks as one, and the loop that reads and writes it.

Letters: see `jaxattn._typing`; L is the number of blocks. The axis of L stands behind `*B`, not in
front, so that whatever chooses among examples (a beam search) need not know of it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn import cache as caches
from jaxattn._typing import Array, Int
from jaxattn.cache import KVCache, _door
from jaxattn.nn.residual import BlockCache

StackCache = BlockCache | tuple[BlockCache, ...]
Extend = Callable[[Any, Array, BlockCache], tuple[Array, BlockCache]]


def first_own(cache: StackCache) -> KVCache:
    """What the first block remembers of its own tokens, of whichever kind the caches are."""
    return layer_cache(cache, 0).own if isinstance(cache, BlockCache) else cache[0].own


def check_room(cache: BlockCache, tokens: int, valid: Any) -> None:
    """As `cache.append` does, whose lengths are those of a running loop: too late to know them."""
    own = first_own(cache)
    counts = caches.next_positions(own, tokens, valid) >= 0
    length = own.length + jnp.sum(counts, axis=-1, dtype=jnp.int32)
    _door.room(own, tokens, tokens if valid is None else 0, length)


def layer_cache(cache: BlockCache, layer: int | Int[Array, ""]) -> BlockCache:
    """The cache of one block."""
    axis = layer_axis(cache)
    return jax.tree.map(
        lambda x: jax.lax.dynamic_index_in_dim(x, layer, axis, keepdims=False), cache
    )


def with_layer(cache: BlockCache, layer: Int[Array, ""], after: BlockCache) -> BlockCache:
    """The caches with another one of this block; contexts do not change."""
    axis = layer_axis(cache)
    own = jax.tree.map(
        lambda x, new: jax.lax.dynamic_update_index_in_dim(x, new, layer, axis),
        cache.own,
        after.own,
    )
    return cache._replace(own=own)


def layer_axis(cache: BlockCache) -> int:
    """Where the axis of L is: `length` is `[*B, L]`."""
    return cache.own.length.ndim - 1


def extend_layers(
    extend: Extend, states: Any, x: Array, cache: BlockCache
) -> tuple[Array, BlockCache]:
    """`x, cache_l = extend(state_l, x, cache_l)` for each block, in one loop."""

    def step(carry: tuple[Array, BlockCache], given: Any) -> tuple[tuple[Array, BlockCache], None]:
        x, cache = carry
        layer, state = given
        x, after = extend(state, x, layer_cache(cache, layer))
        return (x, with_layer(cache, layer, after)), None

    def first(held: BlockCache) -> BlockCache:
        return extend(jax.tree.map(lambda x: x[0], states), x, held)[1]

    cache = sharded_alike(cache, first, x)
    layers = jnp.arange(cache.own.length.shape[-1], dtype=jnp.int32)
    (x, cache), _ = jax.lax.scan(step, (x, cache), (layers, states))
    return x, cache


def sharded_alike(
    cache: BlockCache, extend: Callable[[BlockCache], BlockCache], x: Array
) -> BlockCache:
    """The caches, on a mesh with explicit axes, sharded as a step leaves those of a block."""
    explicit = jax.sharding.AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types
    if not explicit:
        return cache
    axis = layer_axis(cache)

    def moved(x: Array, after: Any) -> Array:
        spec = tuple(after.sharding.spec)
        spec += (None,) * (after.ndim - len(spec))
        return jax.sharding.reshard(x, jax.sharding.PartitionSpec(*spec[:axis], None, *spec[axis:]))

    after = jax.eval_shape(extend, layer_cache(cache, 0))
    return cache._replace(own=jax.tree.map(moved, cache.own, after.own))
