"""What a cache holds: an empty one, and one of a context that is all there.

Letters: see `jaxattn._typing`; C is the capacity.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.cache import _door


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
    _door.same_tokens(key, value)
    batch, size = key.shape[:-3], key.shape[-3]
    valid = _door.valid_tokens(jnp.ones(size, bool) if valid is None else valid, batch, size)
    counted = jnp.expand_dims(jnp.arange(size, dtype=jnp.int32), tuple(range(len(batch))))
    positions = jnp.where(valid, counted, -1)
    return KVCache(key, value, positions, jnp.full(batch, size, jnp.int32))
