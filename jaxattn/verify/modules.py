"""Adapters for attentions that come as layers, kernels with a plan, or from another framework.

Layers get identity matrices for their projections, so that what is left is the attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .adapters import heads_first, one_example

Array = Any
Function = Callable[..., Any]


def equinox() -> Function:
    """`equinox.nn.MultiheadAttention`, one example at a time, projections the identity."""
    import equinox

    def attend(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        heads, size, value_size = query.shape[-2], query.shape[-1], value.shape[-1]
        layer = equinox.nn.MultiheadAttention(
            heads,
            heads * size,
            value_size=heads * value_size,
            output_size=heads * value_size,
            vo_size=value_size,
            key=jax.random.key(0),
        )
        names = ("query_proj", "key_proj", "value_proj", "output_proj")
        where = lambda layer: [getattr(layer, name).weight for name in names]  # noqa: E731
        eyes = [jnp.eye(weight.shape[0], dtype=query.dtype) for weight in where(layer)]
        layer = equinox.tree_at(where, layer, eyes)
        flat = (array.reshape(len(array), heads * array.shape[-1]) for array in (query, key, value))
        return layer(*flat, mask=mask).reshape(*query.shape[:-1], value_size)

    return one_example(attend)


def keras() -> Function:
    """`keras.layers.MultiHeadAttention` on JAX, projections the identity. One batch axis."""
    import keras as framework

    def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        heads, size = query.shape[-2:]
        layer = framework.layers.MultiHeadAttention(
            heads, size, value.shape[-1], use_bias=False, dtype=query.dtype.name
        )
        flat = [
            array.reshape(*array.shape[:-2], array.shape[-2] * array.shape[-1])
            for array in (query, value, key)
        ]
        with jax.ensure_compile_time_eval():
            layer.build(*(array.shape for array in flat))
            layer.set_weights([_identity(weight.shape) for weight in layer.weights])
        batched = None if mask is None else jnp.broadcast_to(mask, (query.shape[0], *mask.shape))
        out = layer(*flat, attention_mask=batched)
        return out.reshape(*query.shape[:-1], value.shape[-1])

    return attention


def _identity(shape: tuple[int, ...]) -> np.ndarray:
    """A projection's kernel, [D, N, H] or [N, H, D], that changes nothing."""
    return np.eye(max(shape[0], shape[-1])).reshape(shape)


def splash(block: int = 128, interpret: bool | None = None) -> Function:
    """JAX's splash attention for TPU; elsewhere interpreted. The mask must be known."""
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    simulated = jax.default_backend() != "tpu" if interpret is None else interpret

    def attend(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        tokens, heads = query.shape[0], query.shape[1]
        seen = np.ones((tokens, key.shape[0]), bool) if mask is None else np.asarray(mask)
        masks = kernels.MultiHeadMask([kernels.NumpyMask(seen)] * heads)
        kernel = kernels.make_splash_mha(
            mask=masks, head_shards=1, q_seq_shards=1, interpret=simulated,
            block_sizes=kernels.BlockSizes(block_q=block, block_kv=block, block_kv_compute=block,
                block_q_dkv=block, block_kv_dkv=block, block_kv_dkv_compute=block,
                block_q_dq=block, block_kv_dq=block),
        )  # fmt: skip
        first = (
            jnp.swapaxes(array, 0, 1) for array in (query * query.shape[-1] ** -0.5, key, value)
        )
        return jnp.swapaxes(jnp.asarray(kernel(*first)), 0, 1)

    return one_example(attend)


def torch_sdpa() -> Function:
    """Torch's `scaled_dot_product_attention`, through NumPy: values only, not compiled."""
    import torch

    def attend(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        tensors = [torch.from_numpy(np.array(array)) for array in (query, key, value)]
        group = query.shape[-3] // key.shape[-3]
        tensors = [tensors[0], *(t.repeat_interleave(group, dim=-3) for t in tensors[1:])]
        seen = None if mask is None else torch.from_numpy(np.array(mask))
        out = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=seen)
        return jnp.asarray(out.numpy())

    return heads_first(attend)
