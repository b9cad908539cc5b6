"""The public door of the primitive: arguments in, checked and in one form, or an error.

No maths here, and no checks behind it. Letters: see `jaxattn._typing`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import _validate
from jaxattn._precision import accumulator, as_dtype, check_int32, known
from jaxattn._typing import Array, Precision
from jaxattn.biases import Bias
from jaxattn.dropout import Dropout, dropout_from_key
from jaxattn.masks import Mask, Predicate
from jaxattn.masks._base import alignment_offset, walk
from jaxattn.scores import default_scale

PAIR_LETTERS = "[T, S] or [*B, N, T, S]"


def _static() -> Any:
    return dataclasses.field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Inputs:
    """The arguments of the primitive, valid and in one form; what every implementation takes.

    `pairs` and `bias` are arrays with len(*B) + 3 axes, indexed by row and column; `mask` and
    `bias_function` are functions of positions. `scale` and `softcap` have the scores' rank.
    Positions that are None count from `query_offset` and from 0.
    """

    query: Array
    key: Array
    value: Array
    scale: Array
    mask: Mask | None
    pairs: Array | None
    bias: Array | None
    bias_function: Callable[[Any, Any], Any] | None
    softcap: Array | None
    score_mod: Callable[[Any, Any, Any], Any] | None
    dropout: Dropout | None
    query_positions: Array | None
    key_positions: Array | None
    query_offset: int = _static()
    precision: Precision = _static()

    @property
    def batch(self) -> tuple[int, ...]:
        """`*B`."""
        return self.query.shape[:-3]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """`T, S, N, K`."""
        queries, heads = self.query.shape[-3:-1]
        keys, key_heads = self.key.shape[-3:-1]
        return queries, keys, heads, key_heads


def enter(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any,
    bias: Any,
    scale: Any,
    softcap: Any,
    score_mod: Any,
    dropout_rate: Any,
    dropout_key: Any,
    query_positions: Any,
    key_positions: Any,
    precision: Precision,
) -> Inputs:
    """Check the arguments of `partial_attention` and bring them into one form."""
    query, key, value = heads(query, key, value)
    batch, (queries, count, size) = query.shape[:-3], query.shape[-3:]
    keys, key_heads = key.shape[-3:-1]
    wide = accumulator(query.dtype)
    shapes = (batch, (1, count, key_heads), (1, queries), (1, keys))
    query_positions = positions("query_positions", query_positions, batch, queries, "T")
    key_positions = positions("key_positions", key_positions, batch, keys, "S")
    given = query_positions is not None, key_positions is not None
    is_mask, bias_is_function = isinstance(mask, Mask), callable(bias)
    offset = alignment_offset(mask if is_mask and not any(given) else None, queries, keys)
    ends = None if given[0] else queries + offset, None if given[1] else keys
    check_bias(bias, batch, count, ends)
    rank = len(batch) + 3
    return Inputs(
        query=query,
        key=key,
        value=value,
        scale=per_head("scale", default_scale(size) if scale is None else scale, count, wide, rank),
        mask=positional_mask(mask, batch, any(given), ends) if is_mask else None,
        pairs=None if is_mask or mask is None else pair_array("mask", mask, *shapes),
        bias=None if bias_is_function or bias is None else pair_array("bias", bias, *shapes),
        bias_function=as_pytree(bias) if bias_is_function else None,
        softcap=None if softcap is None else positive_cap(softcap, count, wide, rank),
        score_mod=None if score_mod is None else as_pytree(modifier(score_mod)),
        dropout=dropout(dropout_rate, dropout_key, batch),
        query_positions=query_positions,
        key_positions=key_positions,
        query_offset=offset,
        precision=precision,
    )


def check_bias(
    bias: Any, batch: tuple[int, ...], heads: int, ends: tuple[int | None, int | None]
) -> None:
    """Raise unless a `Bias` fits; a mask, which can be called too, is no bias."""
    if isinstance(bias, Mask):
        raise TypeError(f"bias got the mask {bias!r}; pass it as mask=")
    if isinstance(bias, Bias):
        bias.check(batch, heads, *ends)


def heads(query: Any, key: Any, value: Any) -> tuple[Array, Array, Array]:
    """Query `[*B, T, N, H]`, key `[*B, S, K, H]`, value `[*B, S, K, Hv]`, of one dtype."""
    named = {"query": (query, "[*B, T, N, H]"), "key": (key, "[*B, S, K, H]")}
    named["value"] = (value, "[*B, S, K, Hv]")
    arrays = {name: _validate.floating(name, x, letters) for name, (x, letters) in named.items()}
    for name, x in arrays.items():
        _validate.minimum_rank(name, x, 3, named[name][1])
    _validate.same_dtype(**arrays)
    query, key, value = arrays.values()
    if not query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        raise ValueError(
            f"query, key and value must share their batch axes *B, got shapes {list(query.shape)}, "
            f"{list(key.shape)} and {list(value.shape)} for [*B, T, N, H], [*B, S, K, H] and "
            "[*B, S, K, Hv]; broadcast the smaller one with jnp.broadcast_to"
        )
    axes = {"key": key.shape[-3], "value": value.shape[-3]}
    _validate.equal_axis(axes, "S", _validate.LAYOUT_HINT)
    axes = {"key": key.shape[-2], "value": value.shape[-2]}
    _validate.equal_axis(axes, "K", _validate.LAYOUT_HINT)
    axes = {"query": query.shape[-1], "key": key.shape[-1]}
    _validate.equal_axis(axes, "H", "value alone may have another head size, Hv")
    if key.shape[-2] == 0 or query.shape[-2] % key.shape[-2]:
        raise ValueError(
            f"N = {query.shape[-2]} query heads must be a multiple of K = {key.shape[-2]} key "
            f"heads, got query {list(query.shape)} and key {list(key.shape)}; "
            f"{_validate.LAYOUT_HINT}"
        )
    return query, key, value


def positions(
    name: str, given: Any, batch: tuple[int, ...], size: int, letter: str
) -> Array | None:
    """Explicit positions as int32 `[*B, T]` or `[T]`, or None."""
    if given is None:
        return None
    letters = f"[{letter}] or [*B, {letter}]"
    array = _validate.integers(name, given, letters)
    if array.shape not in ((size,), (*batch, size)):
        raise ValueError(
            f"{name} must be {letters} = {[size]} or {[*batch, size]}, got shape "
            f"{list(array.shape)}; one position for each of the {letter} = {size} tokens"
        )
    check_int32(name, given, "count from the first token, and give padding -1")
    return array.astype(jnp.int32)


def positional_mask(
    mask: Mask, batch: tuple[int, ...], given: bool, ends: tuple[int | None, int | None]
) -> Mask:
    """A `Mask` whose arrays fit and reach to the ends, and whose alignment is said once."""
    aligned = any(getattr(part, "align", None) for part in walk(mask))
    if aligned and given:
        raise ValueError(
            f"{mask!r} says align, and positions are given too; positions already say where "
            "queries and keys stand: leave align out of the mask"
        )
    mask.check(batch, *ends)
    # A mask that is itself a leaf is of a class that JAX was not told of: a mere function.
    return jax.tree.map(lambda part: Predicate(part) if isinstance(part, Mask) else part, mask)


def pair_array(
    name: str,
    x: Any,
    batch: tuple[int, ...],
    heads: tuple[int, ...],
    rows: tuple[int, ...],
    columns: tuple[int, ...],
) -> Array:
    """A mask or bias array with exactly len(*B) + 3 axes, each of its size or 1."""
    check = (
        _validate.boolean_mask if name == "mask" else lambda x, s: _validate.floating(name, x, s)
    )
    x = check(x, PAIR_LETTERS)
    allowed = (*((1, size) for size in batch), heads, rows, columns)
    if x.ndim > 2 and x.ndim != len(allowed):
        raise ValueError(
            f"{name} must be {PAIR_LETTERS} with {len(allowed)} axes here (*B = {list(batch)}), "
            f"got {x.ndim} axes, shape {list(x.shape)}; insert axes of 1 where it repeats: "
            f"{name}[:, None] makes [B, T, S] into [B, 1, T, S]"
        )
    given, x = x.shape, jnp.expand_dims(x, tuple(range(len(allowed) - x.ndim)))
    if not all(size in sizes for size, sizes in zip(x.shape, allowed, strict=True)):
        expected = [*batch, heads[1], rows[1], columns[1]]
        raise ValueError(
            f"{name} must broadcast to [*B, N, T, S] = {expected}, each axis its size or 1 (heads "
            f"also K = {heads[-1]}), got shape {list(given)}; an array over tokens of one side "
            "needs the other axis as 1: [*B, 1, 1, S] for keys"
        )
    return x


def per_head(name: str, x: Any, count: int, dtype: Any, rank: int) -> Array:
    """A number or `[N]` in `dtype`, with the axes of scores `[*B, N, T, S]`."""
    numeric = isinstance(x, int | float) or hasattr(x, "dtype")
    kind = jnp.result_type(x) if numeric else None
    if kind is None or not jnp.issubdtype(kind, jnp.number):
        raise TypeError(f"{name} must be a number or an array [N], got {type(x).__name__}")
    if jnp.issubdtype(kind, jnp.complexfloating):
        raise TypeError(f"{name} must be a real number or an array [N] of them, got {kind}")
    if jnp.shape(x) not in ((), (count,)):
        raise ValueError(
            f"{name} must be a scalar or [N] = [{count}], got shape {list(jnp.shape(x))}; "
            "what differs from token to token goes into query, bias or score_mod"
        )
    x = as_dtype(x, dtype)
    return x.reshape((1,) * (rank - 3) + (-1, 1, 1))


def positive_cap(softcap: Any, count: int, dtype: Any, rank: int) -> Array:
    """A softcap, positive and finite where it is known."""
    array = per_head("softcap", softcap, count, dtype, rank)
    numbers = known(softcap)
    if numbers is not None and not np.all((numbers > 0) & (numbers < np.inf)):
        raise ValueError(f"softcap must be positive and finite, got {softcap}; None turns it off")
    return array


def modifier(score_mod: Any) -> Any:
    """A callable."""
    if not callable(score_mod):
        raise TypeError(
            "score_mod must be a function (scores, query_positions, key_positions) -> scores, "
            f"got {type(score_mod).__name__}; an array that is added goes into bias="
        )
    return score_mod


def as_pytree(function: Any) -> Any:
    """A pytree callable as it is; a plain function as a pytree without leaves."""
    return jax.tree_util.Partial(function) if jax.tree_util.all_leaves([function]) else function


def dropout(rate: Any, key: Any, batch: tuple[int, ...]) -> Dropout | None:
    """Dropout, or None for rate 0."""
    if _validate.rate("dropout_rate", rate) == 0:
        return None
    if key is None:
        raise ValueError(
            f"dropout_rate = {rate} needs dropout_key, got None; pass jax.random.key(seed), a new "
            "one each step, or dropout_rate=0 for evaluation"
        )
    key = random_key(key, batch)
    return dropout_from_key(key, float(rate), batch)


def random_key(key: Any, batch: tuple[int, ...]) -> Array:
    """One key, or a key for each example of `*B`."""
    fix = "make one by jax.random.key(seed)"
    key = _validate.array("dropout_key", key, "() or [*B] of keys", fix)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.dtype != jnp.uint32:
            raise TypeError(f"dropout_key must be a key of jax.random.key(seed), got {key.dtype}")
        key = jax.random.wrap_key_data(key)
    if key.shape not in ((), batch):
        raise ValueError(
            f"dropout_key must be one key or one per example, [*B] = {list(batch)}, got shape "
            f"{list(key.shape)}"
        )
    return key


def sink(x: Any, count: int, dtype: Any) -> Array:
    """The sink's logits `[N]` from a number or `[N]`."""
    return jnp.broadcast_to(per_head("sink", x, count, dtype, 3)[:, 0, 0], (count,))
