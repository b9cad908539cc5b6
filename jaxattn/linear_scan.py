"""Causal linear attention in chunks: inside a chunk all pairs, from chunk to chunk a state.

The state is a matrix M that a token changes, and a query reads:

    M_i = exp(g_i) ∘ M_{i-1} + k_i u_iᵀ,   out_i = M_iᵀ q_i

with u_i = v_i, or by the delta rule u_i = β_i (v_i - (exp(g_i) ∘ M_{i-1})ᵀ k_i). Unrolled over a
chunk, with d_ij = exp(Σ_{j<l≤i} g_l) and c_i = exp(Σ_{l≤i} g_l) since the chunk began,

    out_i = Σ_{j≤i} (q_i · d_ij ∘ k_j) u_j + M_0ᵀ (c_i ∘ q_i)
    u_i + β_i Σ_{j<i} (k_i · d_ij ∘ k_j) u_j = β_i (v_i - M_0ᵀ (c_i ∘ k_i))

so u is the solution of a triangular system. All exponents are sums of g, never differences of
sums: g may be -inf, which forgets everything. Letters: see `jaxattn._typing`; F is the number of
features, C the size of a chunk, G = N / K.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxattn._mesh import varying_alike
from jaxattn._typing import Array, Float

CHUNK = 64
"""Tokens in a chunk."""

CHANNEL_CHUNK = 16
"""The same where each feature decays by itself: then pairs take C·C·F numbers."""


class Tokens(NamedTuple):
    """Features and values, in the order of time; the parts of one chunk have the same axes."""

    query: Float[Array, "*B K G T F"]
    key: Float[Array, "*B K T F"]
    value: Float[Array, "*B K T Hv"]
    decay: Float[Array, "*B K T f"] | None
    beta: Float[Array, "*B K T 1"] | None


def scan_chunks(
    tokens: Tokens, memory: Float[Array, "*B K F Hv"]
) -> tuple[Float[Array, "*B K G T Hv"], Float[Array, "*B K F Hv"]]:
    """All outputs and the last state, with memory for one chunk's pairs at a time."""
    length = tokens.query.shape[-2]
    by_channel = tokens.decay is not None and tokens.decay.shape[-1] > 1
    size = max(1, min(CHANNEL_CHUNK if by_channel else CHUNK, length))
    tokens, memory = varying_alike((tokens, memory))
    chunks = jax.tree.map(lambda x: in_chunks(x, size), tokens)
    body = jax.checkpoint(chunk, prevent_cse=False)
    memory, out = jax.lax.scan(body, memory, chunks)
    out = jnp.moveaxis(out, 0, -3)
    out = out.reshape(*out.shape[:-3], out.shape[-3] * size, out.shape[-1])
    return out[..., :length, :], memory


def in_chunks(x: Float[Array, "*B T F"], size: int) -> Float[Array, "chunks *B C F"]:
    """Chunks as the first axis, with zeros behind the end: they change nothing."""
    length = x.shape[-2]
    count = -(-length // size)
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, count * size - length), (0, 0)])
    return jnp.moveaxis(x.reshape(*x.shape[:-2], count, size, x.shape[-1]), -3, 0)


def chunk(memory: Float[Array, "*B K F Hv"], tokens: Tokens) -> tuple[Array, Array]:
    """The state after a chunk, and the chunk's outputs."""
    query, key, value, decay, beta = tokens
    since = start = end = None
    if decay is not None:
        since = jnp.exp(sums_between(decay))
        start, end = jnp.exp(jnp.cumsum(decay, axis=-2)), since[..., -1, :, :]
    if beta is not None:
        value = corrected(key, value, beta, since, jnp.matmul(scaled(key, start), memory))
    weights = pairs(query, key, since)
    out = jnp.matmul(weights, value[..., None, :, :])
    before = query if start is None else query * start[..., None, :, :]
    out = out + jnp.matmul(before, memory[..., None, :, :])
    if start is not None:
        memory = memory * start[..., -1, :, None]
    return memory + jnp.matmul(jnp.swapaxes(scaled(key, end), -1, -2), value), out


def corrected(
    key: Float[Array, "*B K C F"],
    value: Float[Array, "*B K C Hv"],
    beta: Float[Array, "*B K C 1"],
    since: Float[Array, "*B K C C f"] | None,
    remembered: Float[Array, "*B K C Hv"],
) -> Float[Array, "*B K C Hv"]:
    """u of the delta rule: what is written is what is missing from what the state says."""
    system = beta * pairs(key[..., None, :, :], key, since)[..., 0, :, :]
    return jax.lax.linalg.triangular_solve(
        system, beta * (value - remembered), left_side=True, lower=True, unit_diagonal=True
    )


def pairs(
    query: Float[Array, "*B K G C F"],
    key: Float[Array, "*B K C F"],
    since: Float[Array, "*B K C C f"] | None,
) -> Float[Array, "*B K G C C"]:
    """`q_i · d_ij ∘ k_j` for j ≤ i, else 0."""
    if since is not None and since.shape[-1] > 1:
        products = jnp.einsum("...gif,...jf,...ijf->...gij", query, key, since)
    else:
        products = jnp.matmul(query, jnp.swapaxes(key, -1, -2)[..., None, :, :])
        products = products if since is None else products * since[..., None, :, :, 0]
    return jnp.where(no_later(products.shape), products, 0)


def sums_between(decay: Float[Array, "*B K C f"]) -> Float[Array, "*B K C C f"]:
    """`Σ_{j<l≤i} g_l` at (i, j) for j ≤ i, else -inf."""
    size = decay.shape[-2]
    each = jnp.broadcast_to(decay[..., :, None, :], (*decay.shape[:-1], size, decay.shape[-1]))
    sums = jnp.cumsum(jnp.where(later(each.shape), each, 0), axis=-3)
    return jnp.where(later(each.shape, or_same=True), sums, -jnp.inf)


def later(shape: tuple[int, ...], or_same: bool = False) -> Array:
    """Where i > j (or i ≥ j) in an array `[..., C, C, f]`."""
    row, column = (
        jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) + axis) for axis in (-3, -2)
    )
    return (row >= column) if or_same else (row > column)


def no_later(shape: tuple[int, ...]) -> Array:
    """Where j ≤ i in an array `[..., C, C]`."""
    return later((*shape, 1), or_same=True)[..., 0]


def scaled(x: Array, by: Array | None) -> Array:
    """`x ∘ by`; x for None."""
    return x if by is None else x * by
