"""Keys and values of the tokens so far, so that new tokens do not compute them again.

A cache is a frozen pytree of arrays of fixed shape: it passes through `jit`, `scan`, `vmap` and
meshes like any other. Each example counts its own tokens. A slot that holds nothing has position
-1, and a position below 0 is attended to by nobody:

    cache = append(cache, key, value)
    attention(query, cache.key, cache.value, mask=Causal(), query_positions=...,
              key_positions=cache.positions)

Letters: see `jaxattn._typing`; C is the capacity, T the number of new tokens.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn import _cache_door, _validate
from jaxattn._typing import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
    """Keys and values of the tokens so far, with their positions.

    `key` `[*B, C, K, H]`, `value` `[*B, C, K, Hv]`; `positions` int32 `[*B, C]`, -1 where a slot
    is empty; `length` int32 `[*B]`, how many tokens each example has had. Where it `wraps`, the
    token at position p takes slot p mod C, and the oldest is forgotten.
    """

    key: Float[Array, "*B C K H"]
    value: Float[Array, "*B C K Hv"]
    positions: Int[Array, "*B C"]
    length: Int[Array, "*B"]
    wraps: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def capacity(self) -> int:
        """C."""
        return self.key.shape[-3]


class Readable(NamedTuple):
    """What new queries read: `key [*B, S, K, H]`, `value [*B, S, K, Hv]`, `positions [*B, S]`."""

    key: Array
    value: Array
    positions: Array


def init(
    batch: int | tuple[int, ...],
    capacity: int,
    key_heads: int,
    head_size: int,
    value_size: int | None = None,
    *,
    dtype: Any = jnp.float32,
    wraps: bool = False,
) -> KVCache:
    """An empty cache.

    Args:
      batch: *B, one number or several; () for none.
      capacity: C, how many tokens it holds.
      key_heads: K.
      head_size: H.
      value_size: Hv; default H.
      dtype: that of the keys and values to come.
      wraps: a ring that forgets the oldest, for masks that look at most C tokens back.

    Returns:
      a `KVCache`.

    Raises:
      TypeError: a size is no integer.
      ValueError: a size is negative, or the capacity below 1.

    Example:
      >>> from jaxattn import cache
      >>> cache.init(2, 8, key_heads=4, head_size=16).key.shape
      (2, 8, 4, 16)
    """
    batch = batch if isinstance(batch, tuple) else (batch,)
    sizes = dict(capacity=capacity, key_heads=key_heads, head_size=head_size)
    value_size = head_size if value_size is None else value_size
    for name, size in (sizes | dict(value_size=value_size)).items():
        if _validate.integer(name, size) < (name == "capacity"):
            raise ValueError(f"{name} must be at least {int(name == 'capacity')}, got {size}")
    return KVCache(
        key=jnp.zeros((*batch, capacity, key_heads, head_size), dtype),
        value=jnp.zeros((*batch, capacity, key_heads, value_size), dtype),
        positions=jnp.full((*batch, capacity), -1, jnp.int32),
        length=jnp.zeros(batch, jnp.int32),
        wraps=wraps,
    )


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
    valid = _cache_door.valid_tokens(valid, batch, tokens)
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
    key, value = _cache_door.new_tokens(cache, key, value)
    cache = _cache_door.sharded_alike(cache, key)
    tokens = key.shape[-3]
    positions = next_positions(cache, tokens, valid)
    length = cache.length + jnp.sum(positions >= 0, axis=-1, dtype=jnp.int32)
    _cache_door.room(cache, tokens, tokens if valid is None else 0, length)
    write = _write_ring if cache.wraps else _write
    for _ in cache.length.shape:
        write = jax.vmap(write)
    old, new = Readable(cache.key, cache.value, cache.positions), Readable(key, value, positions)
    held = write(old, cache.length, length, new)
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


def from_context(
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    valid: Bool[Array, "*B S"] | None = None,
) -> KVCache:
    """A full cache of keys and values that are all there: the context of cross-attention.

    Args:
      key: `[*B, S, K, H]`.
      value: `[*B, S, K, Hv]`.
      valid: boolean `[*B, S]` or `[S]`, False for padding.

    Returns:
      a `KVCache` of capacity S; token i is in slot i, at position i, or -1 where it is padding.

    Raises:
      TypeError, ValueError: as in `append`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import cache
      >>> context = jnp.ones((2, 3, 1, 4))
      >>> print(cache.from_context(context, context, jnp.array([True, False, True])).positions)
      [[ 0 -1  2]
       [ 0 -1  2]]
    """
    key = _validate.floating("key", key, "[*B, S, K, H]")
    value = _validate.floating("value", value, "[*B, S, K, Hv]")
    _validate.same_dtype(key=key, value=value)
    _cache_door.same_tokens(key, value)
    batch, size = key.shape[:-3], key.shape[-3]
    valid = _cache_door.valid_tokens(jnp.ones(size, bool) if valid is None else valid, batch, size)
    counted = jnp.expand_dims(jnp.arange(size, dtype=jnp.int32), tuple(range(len(batch))))
    positions = jnp.where(valid, counted, -1)
    return KVCache(key, value, positions, jnp.full(batch, size, jnp.int32))


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


def _write(held: Readable, length: Array, after: Array, new: Readable) -> Readable:
    """One example, slot = position; where there is no room the last slot becomes NaN."""
    last = held.positions.shape[0] - 1
    lost = (after > last + 1) & (new.positions >= last)
    slot = jnp.where(new.positions < 0, last + 1, jnp.minimum(new.positions, last))
    key, value = (jnp.where(lost[:, None, None], jnp.nan, x) for x in (new.key, new.value))
    position = jnp.where(lost, jnp.maximum(length, last), new.positions)
    return _scatter(held, slot, Readable(key, value, position))


def _write_ring(held: Readable, length: Array, after: Array, new: Readable) -> Readable:
    """One example, slot = position mod C; only the last C tokens are kept."""
    capacity = held.positions.shape[0]
    kept = (new.positions >= 0) & (new.positions >= after - capacity)
    return _scatter(held, jnp.where(kept, new.positions % capacity, capacity), new)


def _scatter(held: Readable, slot: Array, new: Readable) -> Readable:
    """`new` at these slots; a slot beyond the end is dropped."""
    return Readable(*(old.at[slot].set(x, mode="drop") for old, x in zip(held, new, strict=True)))
