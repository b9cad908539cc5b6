"""One example's new tokens into its slots. Letters: see `jaxattn._typing`; C is the capacity."""

import jax.numpy as jnp

from jaxattn._typing import Array
from jaxattn.cache._held import Readable


def write(held: Readable, length: Array, after: Array, new: Readable) -> Readable:
    """One example, slot = position; where there is no room the last slot becomes NaN."""
    last = held.positions.shape[0] - 1
    lost = (after > last + 1) & (new.positions >= last)
    slot = jnp.where(new.positions < 0, last + 1, jnp.minimum(new.positions, last))
    key, value = (jnp.where(lost[:, None, None], jnp.nan, x) for x in (new.key, new.value))
    position = jnp.where(lost, jnp.maximum(length, last), new.positions)
    return _scatter(held, slot, Readable(key, value, position))


def write_ring(held: Readable, length: Array, after: Array, new: Readable) -> Readable:
    """One example, slot = position mod C; only the last C tokens are kept."""
    capacity = held.positions.shape[0]
    kept = (new.positions >= 0) & (new.positions >= after - capacity)
    return _scatter(held, jnp.where(kept, new.positions % capacity, capacity), new)


def _scatter(held: Readable, slot: Array, new: Readable) -> Readable:
    """`new` at these slots; a slot beyond the end is dropped."""
    return Readable(*(old.at[slot].set(x, mode="drop") for old, x in zip(held, new, strict=True)))
