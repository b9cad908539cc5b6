"""The door of linear attention: arguments in, checked and in one form, or an error.

Letters: see `jaxattn._typing`; F is the number of features, G = N / K.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxattn import _door, _linear_mask, _validate
from jaxattn._precision import accumulator, as_dtype
from jaxattn._typing import Array, Bool, Float
from jaxattn.linear_scan import Tokens
from jaxattn.masks import Causal

FeatureMap = Callable[[Array], Array]


class LinearState(NamedTuple):
    """What all keys so far have left: `Σ φ(k) vᵀ` and `Σ φ(k)`, decayed or corrected.

    `memory` is `[*B, K, F, Hv]`, `total` `[*B, K, F]` (0 where nothing is normalised).

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import LinearState
      >>> LinearState(jnp.zeros((2, 4, 3)), jnp.zeros((2, 4))).memory.shape
      (2, 4, 3)
    """

    memory: Float[Array, "*B K F Hv"]
    total: Float[Array, "*B K F"]


class LinearInputs(NamedTuple):
    """The arguments, valid and in one form: features, float32 or wider, heads before tokens."""

    tokens: Tokens
    state: LinearState
    scale: Array
    causal: bool
    normalize: bool
    present: Bool[Array, "*B T"] | None
    dtype: Any


def enter(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any,
    feature_map: FeatureMap | None,
    normalize: bool,
    scale: Any,
    decay: Any,
    beta: Any,
    state: LinearState | None,
) -> LinearInputs:
    """Check the arguments of `linear_attention` and bring them into one form."""
    query, key, value = _door.heads(query, key, value)
    dtype, wide = query.dtype, accumulator(query.dtype)
    batch, keys, heads = query.shape[:-3], key.shape[-3], key.shape[-2]
    causal, here, there = _linear_mask.parts(mask, batch, query.shape[-3], keys)
    _check_choices(causal, normalize, scale, decay, beta)
    query, key = (
        features(feature_map, zeroed(x, kept).astype(wide), kept)
        for x, kept in ((query, here), (key, there))
    )
    value = zeroed(value, there).astype(wide)
    if decay is not None:
        decay = _per_token("decay", decay, (*batch, keys, heads), key.shape[-1], wide)
        decay = jnp.swapaxes(zeroed(decay, there), -2, -3)
    if beta is not None:
        beta = _per_token("beta", beta, (*batch, keys, heads), None, wide)
        beta = jnp.swapaxes(zeroed(beta, there), -2, -3)
    key, value = (jnp.swapaxes(x, -2, -3) for x in (key, value))
    groups = query.shape[-2] // heads
    query = query.reshape(*query.shape[:-2], heads, groups, query.shape[-1])
    query = jnp.moveaxis(query, -4, -2)
    state = _state(state, (*batch, heads, key.shape[-1], value.shape[-1]), wide)
    tokens = Tokens(query, key, value, decay, beta)
    scale = as_dtype(1.0 if scale is None else scale, wide)
    return LinearInputs(tokens, state, scale, causal, normalize, here, dtype)


def features(feature_map: FeatureMap | None, x: Array, present: Array | None) -> Array:
    """`φ(x)` `[*B, T, N, F]`, 0 where nothing is present."""
    mapped = x if feature_map is None else feature_map(x)
    shape, dtype = jnp.shape(mapped), jnp.result_type(mapped)
    if shape[:-1] != x.shape[:-1] or not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"feature_map must map [..., H] = {list(x.shape)} to floating [..., F], got "
            f"{dtype}{list(shape)}; it acts on the last axis alone"
        )
    return zeroed(jnp.asarray(mapped).astype(x.dtype), present)


def zeroed(x: Array, present: Array | None) -> Array:
    """x `[*B, T, K, F]`, 0 where nothing is present."""
    return x if present is None else jnp.where(present[..., None, None], x, 0)


def _check_choices(causal: bool, normalize: bool, scale: Any, decay: Any, beta: Any) -> None:
    for name, x in (("decay", decay), ("beta", beta)):
        if x is not None and not causal:
            raise ValueError(
                f"{name} acts from token to token, got it without an order; give mask=Causal()"
            )
    for name, x in (("beta", beta), ("scale", scale)):
        if x is not None and normalize:
            raise ValueError(
                f"{name} has no meaning where weights are normalised to the sum 1; give "
                f"normalize=False, or leave {name} out"
            )


def _per_token(name: str, x: Any, shape: tuple[int, ...], features: int | None, wide: Any) -> Array:
    """Numbers `[*B, S, K]`, or (decay) `[*B, S, K, F]`, as `[*B, S, K, 1]` or `[*B, S, K, F]`."""
    letters = "[*B, S, K]" if features is None else "[*B, S, K] or [*B, S, K, F]"
    x = _validate.floating(name, x, letters)
    if x.shape == shape:
        return x.astype(wide)[..., None]
    if features is not None and x.shape == (*shape, features):
        return x.astype(wide)
    expected = f"{list(shape)}" + ("" if features is None else f" or {[*shape, features]}")
    raise ValueError(f"{name} must be {letters} = {expected}, got shape {list(x.shape)}")


def _state(state: Any, shape: tuple[int, ...], wide: Any) -> LinearState:
    """The given state, or nothing so far."""
    if state is None:
        return LinearState(jnp.zeros(shape, wide), jnp.zeros(shape[:-1], wide))
    if not (isinstance(state, tuple) and len(state) == 2):
        raise TypeError(f"state must be a LinearState or None, got {type(state).__name__}")
    for name, x, wanted, letters in (
        ("state.memory", state[0], shape, "[*B, K, F, Hv]"),
        ("state.total", state[1], shape[:-1], "[*B, K, F]"),
    ):
        if _validate.floating(name, x, letters).shape != wanted:
            raise ValueError(
                f"{name} must be {letters} = {list(wanted)}, got shape {list(x.shape)}; it comes "
                "from linear_attention_with_state with the same feature map"
            )
    return LinearState(*(jnp.asarray(x).astype(wide) for x in state))


def enter_one(query: Any, key: Any, value: Any, **options: Any) -> LinearInputs:
    """The arguments of `linear_attention_step` as those of a call with T = S = 1."""
    named = {"query": (query, "[*B, N, H]"), "key": (key, "[*B, K, H]")}
    named["value"] = (value, "[*B, K, Hv]")
    for name in ("decay", "beta"):
        if options[name] is not None:
            named[name] = (options[name], "[*B, K]")
    arrays = {}
    for name, (x, letters) in named.items():
        x = _validate.floating(name, x, letters)
        rank = 1 if name in ("decay", "beta") else 2
        _validate.minimum_rank(name, x, rank, letters)
        arrays[name] = x
    heads = arrays["key"].ndim - 2
    arrays = {name: jnp.expand_dims(x, heads) for name, x in arrays.items()}
    options |= {name: arrays.get(name) for name in ("decay", "beta")}
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    return enter(query, key, value, mask=Causal(), **options)
