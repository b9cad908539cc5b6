"""Keys and values of the tokens so far, so that new tokens do not compute them again.

    KVCache, init           the pytree, and an empty one             _held.py
    from_context            a full one, for cross-attention          _held.py
    append                  more tokens                              _append.py
    append_and_read         the same, and what their queries read    _append.py
    next_positions, or_nan  where they stand; who found no place     _append.py

A cache is a frozen pytree of arrays of fixed shape: it passes through `jit`, `scan`, `vmap` and
meshes like any other. Each example counts its own tokens. A slot that holds nothing has position
-1, and a position below 0 is attended to by nobody:

    cache = append(cache, key, value)
    attention(query, cache.key, cache.value, mask=Causal(), query_positions=...,
              key_positions=cache.positions)

Letters: see `jaxattn._typing`; C is the capacity, T the number of new tokens.
"""

from jaxattn.cache._append import append as append
from jaxattn.cache._append import append_and_read as append_and_read
from jaxattn.cache._append import next_positions as next_positions
from jaxattn.cache._append import or_nan as or_nan
from jaxattn.cache._held import KVCache as KVCache
from jaxattn.cache._held import Readable as Readable
from jaxattn.cache._held import from_context as from_context
from jaxattn.cache._held import init as init

__all__ = [
    "KVCache",
    "Readable",
    "append",
    "append_and_read",
    "from_context",
    "init",
    "next_positions",
    "or_nan",
]
