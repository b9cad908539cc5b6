"""New tokens: where they stand, how they enter a cache, and what their queries read.

Letters: see `jaxattn._typing`; C is the capacity, T the number of new tokens.
"""

import jax
import jax.numpy as jnp

from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.cache import _door
from jaxattn.cache._held import KVCache, Readable
from jaxattn.cache._write import write, write_ring


def next_positions(
    cache: KVCache, tokens: int, valid: Bool[Array, "*B T"] | None = None
) -> Int[Array, "*B T"]:
    """Positions of T tokens to come: those that count go on from `length`, others get -1.

    Args:
      cache: the tokens so far.
      tokens: T.
      valid: boolean `[*B, T]` or `[T]`, False for padding, wherever it stands; default all True.

    Returns:
      int32 `[*B, T]`.

    Raises:
      TypeError: valid is not boolean.
      ValueError: valid is neither `[T]` nor `[*B, T]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import cache
      >>> empty = cache.init(2, 8, key_heads=1, head_size=1)
      >>> valid = jnp.array([[True, True, True], [False, True, True]])  # padded at the left
      >>> print(cache.next_positions(empty, 3, valid))
      [[ 0  1  2]
       [-1  0  1]]
    """
    batch = cache.length.shape
    if valid is None:
        counted = jnp.arange(tokens, dtype=jnp.int32)
        return cache.length[..., None] + jnp.expand_dims(counted, tuple(range(len(batch))))
    valid = _door.valid_tokens(valid, batch, tokens)
    before = jnp.cumsum(valid, axis=-1, dtype=jnp.int32) - 1
    return jnp.where(valid, cache.length[..., None] + before, -1)


def append(
    cache: KVCache,
    key: Float[Array, "*B T K H"],
    value: Float[Array, "*B T K Hv"],
    valid: Bool[Array, "*B T"] | None = None,
) -> KVCache:
    """The cache with T more tokens, any number of them in each example.

    Args:
      cache: the tokens so far; not changed.
      key: `[*B, T, K, H]` in the cache's dtype.
      value: `[*B, T, K, Hv]`, likewise.
      valid: boolean `[*B, T]` or `[T]`, False for padding, which takes no place.

    Returns:
      a `KVCache`. What does not fit into one that wraps takes the place of the oldest. Into
      another it is an error, where that can be known before the program runs. Where it cannot
      (lengths are traced), the last slot becomes NaN, and so does what is read from the cache
      by a query that attends to it.

    Raises:
      TypeError: dtypes differ.
      ValueError: shapes differ, or there is no room.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import cache
      >>> some = cache.init(2, 4, key_heads=1, head_size=2)
      >>> new = jnp.ones((2, 3, 1, 2))
      >>> some = cache.append(some, new, new, valid=jnp.arange(3) < jnp.array([[3], [1]]))
      >>> print(some.positions)
      [[ 0  1  2 -1]
       [ 0 -1 -1 -1]]
    """
    key, value = _door.new_tokens(cache, key, value)
    cache = _door.sharded_alike(cache, key)
    tokens = key.shape[-3]
    positions = next_positions(cache, tokens, valid)
    length = cache.length + jnp.sum(positions >= 0, axis=-1, dtype=jnp.int32)
    _door.room(cache, tokens, tokens if valid is None else 0, length)
    into = write_ring if cache.wraps else write
    for _ in cache.length.shape:
        into = jax.vmap(into)
    old, new = Readable(cache.key, cache.value, cache.positions), Readable(key, value, positions)
    held = into(old, cache.length, length, new)
    return KVCache(*held, length=length, wraps=cache.wraps)


def append_and_read(
    cache: KVCache,
    key: Float[Array, "*B T K H"],
    value: Float[Array, "*B T K Hv"],
    valid: Bool[Array, "*B T"] | None = None,
) -> tuple[Readable, KVCache]:
    """What queries at the new tokens read, and the cache after them.

    In a ring, several new tokens overwrite what the first of them still has to see; so they read
    the old cache and themselves.

    Args, Raises: as in `append`.

    Returns:
      `Readable`, for `attention(query, key, value, query_positions=next_positions(...),
      key_positions=positions)`, and a `KVCache`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import cache
      >>> ring = cache.init(1, 2, key_heads=1, head_size=1, wraps=True)
      >>> new = jnp.ones((1, 3, 1, 1))
      >>> readable, ring = cache.append_and_read(ring, new, new)
      >>> print(readable.positions, ring.positions)
      [[-1 -1  0  1  2]] [[2 1]]
    """
    after = append(cache, key, value, valid)
    tokens = jnp.shape(key)[-3]
    if not cache.wraps or tokens == 1:
        return Readable(after.key, after.value, after.positions), after
    new = Readable(jnp.asarray(key), jnp.asarray(value), next_positions(cache, tokens, valid))
    both = (
        jnp.concatenate([old, fresh], axis=axis)
        for old, fresh, axis in (
            (cache.key, new.key, -3),
            (cache.value, new.value, -3),
            (cache.positions, new.positions, -1),
        )
    )
    return Readable(*both), after


def or_nan(
    query: Float[Array, "*B T N H"], cache: KVCache, positions: Int[Array, "*B T"]
) -> Float[Array, "*B T N H"]:
    """Queries, with NaN for those whose own token found no place: no wrong number is silent.

    Args:
      query: `[*B, T, N, H]`.
      cache: where their tokens went.
      positions: `next_positions` of these tokens.

    Returns:
      `[*B, T, N, H]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import cache
      >>> some = cache.init(1, 2, key_heads=1, head_size=1)
      >>> print(cache.or_nan(jnp.ones((1, 3, 1, 1)), some, jnp.array([[1, 2, -1]])).ravel())
      [ 1. nan  1.]
    """
    if cache.wraps:
        return query
    return jnp.where((positions >= cache.capacity)[..., None, None], jnp.nan, query)
