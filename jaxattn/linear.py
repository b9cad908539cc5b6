"""Linear attention: weights that are products of features, so that keys can be summed up first.

    out_i = Σ_j (φ(q_i) · φ(k_j)) v_j / Σ_j φ(q_i) · φ(k_j) = φ(q_i)ᵀ (Σ_j φ(k_j) v_jᵀ) / ...

Time and memory are those of T + S, in every derivative. Letters: see `jaxattn._typing`; F is the
number of features.
"""

import jax.numpy as jnp

from jaxattn import _linear_door
from jaxattn._linear_door import FeatureMap, LinearInputs, LinearState
from jaxattn._typing import Array, Float
from jaxattn.feature_maps import elu_plus_one
from jaxattn.linear_scan import scan_chunks
from jaxattn.masks import Mask
from jaxattn.softmax import positive_or_one


def linear_attention(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap | None = elu_plus_one,
    normalize: bool = True,
    scale: float | Float[Array, ""] | None = None,
    decay: Float[Array, "..."] | None = None,
    beta: Float[Array, "*B S K"] | None = None,
    state: LinearState | None = None,
) -> Float[Array, "*B T N Hv"]:
    """Attention whose weights are products of features, `φ(q_i) · φ(k_j)`, in time T + S.

        out_i = φ(q_i)ᵀ M_i / (φ(q_i) · z_i),   M_i = Σ_j φ(k_j) v_jᵀ,   z_i = Σ_j φ(k_j)

    over all keys, or with `mask=Causal()` over those up to i. With decay and the delta rule

        M_i = exp(g_i) ∘ M_{i-1} + φ(k_i) u_iᵀ,   u_i = β_i (v_i - (exp(g_i) ∘ M_{i-1})ᵀ φ(k_i))

    Args:
      query: `[*B, T, N, H]`.
      key: `[*B, S, K, H]`; N = G·K, and query head h reads key head h // G.
      value: `[*B, S, K, Hv]`.
      mask: `Causal()`, `Lengths(...)`, both with `&`, or None. Other masks are about pairs, which
        are never made here.
      feature_map: φ, `[..., H] -> [..., F]`, see `jaxattn.feature_maps`; None for `φ(x) = x`.
      normalize: whether weights are divided by their sum. A sum of 0 gives 0.
      scale: multiplies the weights where they are not normalised; default 1.
      decay: g, the logarithm of what is kept, at most 0 (-inf forgets all): `[*B, S, K]` or for
        each feature `[*B, S, K, F]`. Causal only.
      beta: β of the delta rule, `[*B, S, K]`. Causal and not normalised only.
      state: what keys before these have left.

    Returns:
      `[*B, T, N, Hv]` in query's dtype; summed in float32 or wider. A query with nothing to attend
      to is 0, with derivative 0; tokens beyond their length change nothing, NaN included.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is an array.
      ValueError: shapes that do not fit, another mask, causal with T ≠ S, decay without order.

    Example:
      >>> import jax
      >>> from jaxattn import linear_attention
      >>> from jaxattn.masks import Causal
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 2, 100, 4, 8))
      >>> linear_attention(query, key, value, mask=Causal()).shape
      (2, 100, 4, 8)

    Source: Katharopoulos et al. 2020; decay, Yang et al. 2024 (gated linear attention); delta
      rule, Schlag, Irie and Schmidhuber 2021.
    """
    inputs = _linear_door.enter(
        query,
        key,
        value,
        mask=mask,
        feature_map=feature_map,
        normalize=normalize,
        scale=scale,
        decay=decay,
        beta=beta,
        state=state,
    )
    return run(inputs)[0]


def linear_attention_with_state(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap | None = elu_plus_one,
    normalize: bool = True,
    scale: float | Float[Array, ""] | None = None,
    decay: Float[Array, "..."] | None = None,
    beta: Float[Array, "*B S K"] | None = None,
    state: LinearState | None = None,
) -> tuple[Float[Array, "*B T N Hv"], LinearState]:
    """`linear_attention`, and the state that its keys leave for those that come after.

        M = Σ_j φ(k_j) v_jᵀ,   z = Σ_j φ(k_j)

    over the keys of `state` and these, decayed and corrected as there.

    Args, with their letters and shapes: those of `linear_attention`.

    Returns:
      out `[*B, T, N, Hv]`, and `LinearState(memory [*B, K, F, Hv], total [*B, K, F])`, M and z in
      float32 or wider.

    Raises:
      TypeError, ValueError: as `linear_attention`.

    Example:
      Two parts one after the other are the whole:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> from jaxattn import linear_attention, linear_attention_with_state
      >>> from jaxattn.masks import Causal
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 10, 1, 8))
      >>> _, state = linear_attention_with_state(query[:6], key[:6], value[:6], mask=Causal())
      >>> rest = linear_attention(query[6:], key[6:], value[6:], mask=Causal(), state=state)
      >>> whole = linear_attention(query, key, value, mask=Causal())
      >>> bool(jnp.allclose(rest, whole[6:], atol=1e-5))
      True

    Source: Katharopoulos et al. 2020, section 3.4.
    """
    inputs = _linear_door.enter(
        query,
        key,
        value,
        mask=mask,
        feature_map=feature_map,
        normalize=normalize,
        scale=scale,
        decay=decay,
        beta=beta,
        state=state,
    )
    return run(inputs)


def linear_attention_step(
    query: Float[Array, "*B N H"],
    key: Float[Array, "*B K H"],
    value: Float[Array, "*B K Hv"],
    state: LinearState | None = None,
    *,
    feature_map: FeatureMap | None = elu_plus_one,
    normalize: bool = True,
    scale: float | Float[Array, ""] | None = None,
    decay: Float[Array, "..."] | None = None,
    beta: Float[Array, "*B K"] | None = None,
) -> tuple[Float[Array, "*B N Hv"], LinearState]:
    """One token of causal `linear_attention`: the recurrent network that it is.

        M ← M + φ(k) vᵀ,   z ← z + φ(k),   out = φ(q)ᵀ M / (φ(q) · z)

    with decay and the delta rule as there.

    Args: those of `linear_attention` without their axis of tokens.
      query: `[*B, N, H]`.
      key: `[*B, K, H]`.
      value: `[*B, K, Hv]`.
      state: M and z of the tokens before; None for none.
      decay: `[*B, K]` or `[*B, K, F]`.
      beta: `[*B, K]`.

    Returns:
      out `[*B, N, Hv]` and the next state.

    Raises:
      TypeError, ValueError: as `linear_attention`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import linear_attention_step
      >>> out, state = linear_attention_step(jnp.ones((1, 2)), jnp.ones((1, 2)), jnp.ones((1, 3)))
      >>> print(out, state.total)
      [[1. 1. 1.]] [[2. 2.]]

    Source: Katharopoulos et al. 2020, equations 16 to 20.
    """
    inputs = _linear_door.enter_one(
        query,
        key,
        value,
        feature_map=feature_map,
        normalize=normalize,
        scale=scale,
        decay=decay,
        beta=beta,
        state=state,
    )
    query, key, value, decay, beta = inputs.tokens
    state, key, value = inputs.state, key[..., 0, :], value[..., 0, :]
    if decay is not None:
        kept = jnp.exp(jnp.broadcast_to(decay[..., 0, :], key.shape))
        state = LinearState(state.memory * kept[..., None], state.total * kept)
    if beta is not None:
        value = beta[..., 0, :] * (value - jnp.sum(state.memory * key[..., None], axis=-2))
    memory = state.memory + key[..., :, None] * value[..., None, :]
    state = LinearState(memory, state.total + key if normalize else state.total)
    out = jnp.matmul(query, state.memory[..., None, :, :])
    total = jnp.sum(query * state.total[..., None, None, :], axis=-1, keepdims=True)
    return tokens_first(finish(inputs, out, total), inputs)[..., 0, :, :], state


def run(inputs: LinearInputs) -> tuple[Float[Array, "*B T N Hv"], LinearState]:
    """Numerator and sum of weights together: the sum is the value 1, in a column of its own."""
    tokens, memory = inputs.tokens, inputs.state.memory
    if inputs.normalize:
        ones = jnp.ones((*tokens.value.shape[:-1], 1), tokens.value.dtype)
        tokens = tokens._replace(value=jnp.concatenate([tokens.value, ones], axis=-1))
        memory = jnp.concatenate([memory, inputs.state.total[..., None]], axis=-1)
    if inputs.causal:
        out, memory = scan_chunks(tokens, memory)
    else:
        memory = memory + jnp.matmul(jnp.swapaxes(tokens.key, -1, -2), tokens.value)
        out = jnp.matmul(tokens.query, memory[..., None, :, :])
    total = None
    state = LinearState(memory, inputs.state.total)
    if inputs.normalize:
        out, total = out[..., :-1], out[..., -1:]
        state = LinearState(memory[..., :-1], memory[..., -1])
    return tokens_first(finish(inputs, out, total), inputs), state


def finish(inputs: LinearInputs, out: Array, total: Array | None) -> Array:
    """Divided by the sum of weights, 0 where it is 0; or scaled."""
    if not inputs.normalize or total is None:
        return out * inputs.scale
    return jnp.where(total == 0, 0, out / positive_or_one(total))


def tokens_first(out: Float[Array, "*B K G T Hv"], inputs: LinearInputs) -> Array:
    """`[*B, T, N, Hv]` in the dtype of the call, 0 where no query is."""
    out = jnp.moveaxis(out, -2, -4)
    out = out.reshape(*out.shape[:-3], out.shape[-3] * out.shape[-2], out.shape[-1])
    return _linear_door.zeroed(out, inputs.present).astype(inputs.dtype)
