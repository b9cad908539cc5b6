"""Dropout of weights, counted rather than drawn: a pure function of who attends to whom.

Whether a weight is kept depends on the key, the index over `*B`, the head, and the query and key
positions, and on nothing else. So every implementation, tile size, derivative and cache drops the
same weights. The hash, for unsigned 32-bit words and Murmur3's finaliser `f`:

    row    = f(f(f(w0 ^ batch) ^ head) ^ i),   salt = f(row ^ w1)
    bits   = f(f(row ^ j) ^ salt)              kept where bits ≥ rate · 2^32

`w0, w1` are 64 random bits of the key. Each `f(· ^ x)` is a bijection of 32-bit words, so no
coordinate repeats before 2^32. Source of `f`: Appleby, MurmurHash3 (public domain), fmix32.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn._typing import Array, Bool, PRNGKey


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dropout:
    """Keep each weight with probability 1 - rate, and scale the kept by 1/(1 - rate).

    `words` `[*B, 2]`, and `batch` `[*B]`, the index over `*B`, are uint32.
    """

    words: Array
    batch: Array
    rate: float = dataclasses.field(metadata={"static": True})

    @property
    def gain(self) -> float:
        """What the kept weights are multiplied with."""
        return 1 / (1 - self.rate)

    def __call__(
        self, heads: Array, query_positions: Array, key_positions: Array
    ) -> Bool[Array, "*B N T S"]:
        """True where the weight is kept, for heads `[N, 1, 1]` and positions as in masks."""
        bits = random_bits(self.words, self.batch, heads, query_positions, key_positions)
        return bits >= jnp.uint32(min(round(self.rate * 2**32), 2**32 - 1))


def dropout_from_key(key: PRNGKey, rate: float, batch: tuple[int, ...]) -> Dropout:
    """Dropout for one key, or for a key per example of `*B` (each then counts as index 0)."""
    keys = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
    bits = jnp.vectorize(lambda k: jax.random.bits(k, (2,), jnp.uint32), signature="()->(2)")
    index = jnp.zeros(batch, jnp.uint32) if keys.ndim else flat_index(batch)
    return Dropout(jnp.broadcast_to(bits(keys), (*batch, 2)), index, rate)


def flat_index(batch: tuple[int, ...]) -> Array:
    """Index over `*B`, row by row: uint32 of shape `*B`."""
    index = jnp.zeros(batch, jnp.uint32)
    for axis, size in enumerate(batch):
        index = index * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, batch, axis)
    return index


def random_bits(
    words: Array, batch: Array, heads: Array, query_positions: Any, key_positions: Any
) -> Array:
    """32 bits for every (batch, head, query position, key position); see the module's text."""
    words = jnp.expand_dims(words, (-2, -3, -4))
    row = mix(words[..., 0] ^ jnp.expand_dims(batch, (-1, -2, -3)))
    row = mix(row ^ expand_to(heads.astype(jnp.uint32), row.ndim))
    row = mix(row ^ expand_to(query_positions.astype(jnp.uint32), row.ndim))
    salt = mix(row ^ words[..., 1])
    return mix(mix(row ^ expand_to(key_positions.astype(jnp.uint32), row.ndim)) ^ salt)


def mix(x: Array) -> Array:
    """Murmur3's 32-bit finaliser: a bijection in which each input bit moves every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def expand_to(x: Array, rank: int) -> Array:
    """x with axes of 1 in front, so that it meets `[*B, N, T, S]`."""
    return jnp.expand_dims(x, tuple(range(rank - x.ndim)))
