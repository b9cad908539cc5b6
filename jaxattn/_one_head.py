"""What attentions without heads share: who may attend to whom, and padding that cannot reach.

Letters: see `jaxattn._typing`.
"""

from typing import Any

import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.masks._base import alignment_offset
from jaxattn.softmax import attention_weights, weighted_sum


def tokens(**arrays: Any) -> list[Array]:
    """Arrays `[*B, T, D]` of one dtype and the same batch axes; D may differ."""
    arrays = {name: _validate.floating(name, x, "[*B, T, D]") for name, x in arrays.items()}
    for name, x in arrays.items():
        _validate.minimum_rank(name, x, 2, "[*B, T, D]")
    _validate.same_dtype(**arrays)
    if len({x.shape[:-2] for x in arrays.values()}) > 1:
        found = ", ".join(f"{name} {list(x.shape)}" for name, x in arrays.items())
        raise ValueError(
            f"{', '.join(arrays)} must share their batch axes *B, got {found} for [*B, T, D]; "
            "broadcast the smaller one with jnp.broadcast_to"
        )
    return list(arrays.values())


def key_and_value(key: Array, value: Array) -> None:
    """One value for each key."""
    axes = {"key": key.shape[-2], "value": value.shape[-2]}
    _validate.equal_axis(axes, "S", "each key [S, D] has its value [S, Hv]")


def vector(name: str, x: Any, size: int, like: Array) -> Array:
    """One number for each of `size` features, `[A]`."""
    x = _validate.floating(name, x, "[A]")
    _validate.same_dtype(query=like, **{name: x})
    if x.shape != (size,):
        raise ValueError(f"{name} must be [A] = [{size}], got shape {list(x.shape)}")
    return x


def allowed_pairs(mask: Any, query: Array, key: Array) -> Bool[Array, "*B T S"] | None:
    """A mask, array or `Mask` at default positions, as `[*B, T, S]`; None for no mask."""
    if mask is None:
        return None
    batch, sizes = query.shape[:-2], (query.shape[-2], key.shape[-2])
    if isinstance(mask, Mask):
        return _at_default_positions(mask, batch, *sizes)
    mask = _validate.boolean_mask(mask, "[T, S] or [*B, T, S]")
    shape = (*batch, *sizes)
    ranks = {2, len(shape)}
    missing = (1,) * (len(shape) - mask.ndim)
    fits = all(a in (1, b) for a, b in zip(missing + mask.shape, shape, strict=False))
    if mask.ndim not in ranks or not fits:
        raise ValueError(
            f"mask must be [T, S] or [*B, T, S] = {list(shape)}, each axis its size or 1, got "
            f"shape {list(mask.shape)}; there are no heads here: leave their axis out"
        )
    return jnp.broadcast_to(mask.reshape(missing + mask.shape), shape)


def _at_default_positions(mask: Mask, batch: tuple[int, ...], queries: int, keys: int) -> Array:
    """The mask of one head: positions come with the axes of `[*B, 1, T, S]`."""
    offset = alignment_offset(mask, queries, keys)
    mask.check(batch, queries + offset, keys)
    lead = (1,) * (len(batch) + 1)
    rows = jnp.arange(queries, dtype=jnp.int32).reshape(*lead, queries, 1) + offset
    columns = jnp.arange(keys, dtype=jnp.int32).reshape(*lead, 1, keys)
    allowed = _validate.pair_result("mask", mask(rows, columns), batch, (1,), queries, keys)
    shape = (*batch, 1, queries, keys)
    return (jnp.broadcast_to(allowed, shape) & jnp.broadcast_to(rows >= 0, shape))[..., 0, :, :]


def without_padding(allowed: Array | None, query: Array, *keys: Array) -> list[Array]:
    """Zeros for tokens that take no part, so that whatever they hold cannot reach anything."""
    if allowed is None:
        return [query, *keys]
    row_used = jnp.any(allowed, axis=-1)[..., None]
    key_used = jnp.any(allowed, axis=-2)[..., None]
    return [jnp.where(row_used, query, 0), *(jnp.where(key_used, key, 0) for key in keys)]


def weigh(scores: Float[Array, "*B T S"], allowed: Array | None, value: Array) -> Array:
    """`softmax(scores) V` in value's dtype, summed in float32 or wider."""
    weights = attention_weights(scores, allowed)
    return weighted_sum(weights, value.astype(accumulator(value.dtype))).astype(value.dtype)


def present(mask: Any, shape: tuple[int, ...]) -> Array | None:
    """Which places take part, `[*B, T]`; None for all."""
    if mask is None:
        return None
    mask = _validate.boolean_mask(mask, "[*B, T]")
    if mask.shape not in (shape, shape[-1:]):
        raise ValueError(
            f"mask must be [*B, T] = {list(shape)} or [T] = {list(shape[-1:])}, got shape "
            f"{list(mask.shape)}; it says of each place whether it takes part"
        )
    return jnp.broadcast_to(jnp.expand_dims(mask, tuple(range(len(shape) - mask.ndim))), shape)
