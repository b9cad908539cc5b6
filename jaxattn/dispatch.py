"""`attention` and its relatives: the door, the table of implementations, the sink.

Letters: see `jaxattn._typing`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxattn import _door
from jaxattn._door import Inputs
from jaxattn._mesh import sharded_tokens
from jaxattn._typing import Array, Bias, Bool, Float, Int, Precision, PRNGKey, ScoreMod
from jaxattn.blockwise import blockwise_attention
from jaxattn.dense import dense_attention
from jaxattn.masks import Mask
from jaxattn.partial import Partial, merge
from jaxattn.softmax import finite_or_zero


class Implementation(NamedTuple):
    """A way to compute `partial_attention`.

    `refusal` says why it cannot do a job, `declines` why it should not unless it is named; None is
    consent.
    """

    name: str
    refusal: Callable[[Inputs], str | None]
    declines: Callable[[Inputs], str | None]
    run: Callable[[Inputs], Partial]


def accept(inputs: Inputs) -> str | None:
    """Any job."""
    return None


def many_pairs(inputs: Inputs) -> str | None:
    """Why tiles should take it: dense scores pay for short sequences only."""
    queries, keys, *_ = inputs.sizes
    if isinstance(queries, int) and isinstance(keys, int) and queries * keys <= DENSE_PAIRS:
        return None
    return f"T·S = {queries * keys} scores a head are more than {DENSE_PAIRS}; tiles take less"


# Measured by `python -m jaxattn bench` on two CPUs: at 256 x 256 dense takes 0.9 to 1.4 times as
# long as tiles for value and gradient, and 0.4 to 1 times as long for jvp and hvp.
DENSE_PAIRS = 256 * 256

# The one table. `None` takes the first that neither refuses nor declines.
IMPLEMENTATIONS = (
    Implementation("dense", accept, many_pairs, lambda inputs: dense_attention(inputs).partial),
    Implementation("blockwise", sharded_tokens, accept, blockwise_attention),
)


def attention(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
    bias: Bias | Float[Array, "..."] | None = None,
    scale: float | Float[Array, "..."] | None = None,
    softcap: float | Float[Array, "..."] | None = None,
    score_mod: ScoreMod | None = None,
    sink: float | Float[Array, "N"] | None = None,
    dropout_rate: float = 0.0,
    dropout_key: PRNGKey | None = None,
    query_positions: Int[Array, "..."] | None = None,
    key_positions: Int[Array, "..."] | None = None,
    precision: Precision = None,
    implementation: str | None = None,
) -> Float[Array, "*B T N Hv"]:
    """Attention, the primitive: every query's weighted mean of the values.

        s_ij = mod(cap(σ q_i · k_j)) + b_ij,   w_ij = exp(s_ij) / (Σ_j exp(s_ij) + exp(z)),
        out_i = Σ_j w_ij v_j

    over the keys j that the mask allows. Differentiable to any order in query, key, value, bias,
    scale, softcap, sink and the arrays of `score_mod`.

    Args:
      query: `[*B, T, N, H]`; *B any number of batch axes.
      key: `[*B, S, K, H]`; N = G·K, and query head h reads key head h // G.
      value: `[*B, S, K, Hv]`.
      mask: True = takes part: a `jaxattn.masks.Mask`, or a boolean array `[T, S]` or
        `[*B, N, T, S]` with broadcasting ones (a head axis of K serves its groups).
      bias: added to scores: a floating array of the same shapes, or a function of positions
        `(query_positions, key_positions) -> bias` of positions that have the scores' rank. -inf
        takes the pair out.
      scale: σ, a number or an array, scalar or `[N]`. Default 1/√H.
      softcap: c in `c · tanh(s / c)`, positive, likewise.
      score_mod: `(scores, query_positions, key_positions) -> scores`, elementwise in scores
        `[*B, N, t, s]`; positions are int32 `[..., t, 1]` and `[..., 1, s]`.
      sink: z, an extra logit without a value, a number or `[N]`. 0 is softmax-off-by-one.
      dropout_rate: share of weights dropped, static, in [0, 1); see `jaxattn.dropout`.
      dropout_key: one key of `jax.random.key`, or one for each example of `*B`.
      query_positions: integers `[T]` or `[*B, T]`, unique in an example; default 0, 1, ...
        (or as the mask's `align` says). A query below 0 is an empty row.
      key_positions: integers `[S]` or `[*B, S]`. A key below 0 is attended to by nobody.
      precision: of both products, as in `jax.lax.dot_general`.
      implementation: a name from `jaxattn.IMPLEMENTATIONS`, which raises if it cannot do the
        job; None chooses.

    Returns:
      `[*B, T, N, Hv]` in query's dtype; summed in float32 or wider. A row with nothing to attend
      to is 0, with derivative 0.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit, an order mask with T ≠ S and no alignment, a dropout
        rate outside [0, 1), or an implementation that is unknown or refuses.

    Example:
      >>> import jax
      >>> from jaxattn import attention
      >>> from jaxattn.masks import Causal
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 2, 5, 4, 8))
      >>> attention(query, key, value, mask=Causal()).shape
      (2, 5, 4, 8)

    Source: Vaswani et al. 2017, equation 1.
    """
    inputs = _door.enter(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        score_mod=score_mod,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        query_positions=query_positions,
        key_positions=key_positions,
        precision=precision,
    )
    partial = choose(inputs, implementation).run(inputs)
    if sink is not None:
        partial = with_sink(partial, _door.sink(sink, inputs.sizes[2], partial.lse.dtype))
    return partial.out.astype(inputs.query.dtype)


def partial_attention(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
    bias: Bias | Float[Array, "..."] | None = None,
    scale: float | Float[Array, "..."] | None = None,
    softcap: float | Float[Array, "..."] | None = None,
    score_mod: ScoreMod | None = None,
    dropout_rate: float = 0.0,
    dropout_key: PRNGKey | None = None,
    query_positions: Int[Array, "..."] | None = None,
    key_positions: Int[Array, "..."] | None = None,
    precision: Precision = None,
    implementation: str | None = None,
) -> Partial:
    """Attention over some of the keys, with the logsumexp that `merge` needs.

        lse_i = log Σ_j exp(s_ij),   out_i = Σ_j exp(s_ij - lse_i) v_j

    Args: as in `attention`, without `sink`, which is
      `merge(partial, Partial(out=0, lse=sink))`.

    Returns:
      `Partial(out [*B, T, N, Hv], lse [*B, T, N])`, natural logarithm, both float32 or wider and
      both differentiable. A row with nothing to attend to is (0, -inf).

    Raises: as in `attention`.

    Example:
      Two halves of the keys are all of them:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> from jaxattn import attention, merge, partial_attention
      >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 6, 1, 8))
      >>> halves = [partial_attention(query, key[a:b], value[a:b]) for a, b in ((0, 3), (3, 6))]
      >>> bool(jnp.allclose(merge(*halves).out, attention(query, key, value), atol=1e-6))
      True

    Source: Rabe and Staats 2021, "Self-attention does not need O(n²) memory".
    """
    inputs = _door.enter(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        score_mod=score_mod,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        query_positions=query_positions,
        key_positions=key_positions,
        precision=precision,
    )
    return choose(inputs, implementation).run(inputs)


def attention_with_weights(
    query: Float[Array, "*B T N H"],
    key: Float[Array, "*B S K H"],
    value: Float[Array, "*B S K Hv"],
    *,
    mask: Mask | Bool[Array, "..."] | None = None,
    bias: Bias | Float[Array, "..."] | None = None,
    scale: float | Float[Array, "..."] | None = None,
    softcap: float | Float[Array, "..."] | None = None,
    score_mod: ScoreMod | None = None,
    sink: float | Float[Array, "N"] | None = None,
    dropout_rate: float = 0.0,
    dropout_key: PRNGKey | None = None,
    query_positions: Int[Array, "..."] | None = None,
    key_positions: Int[Array, "..."] | None = None,
    precision: Precision = None,
) -> tuple[Float[Array, "*B T N Hv"], Float[Array, "*B N T S"]]:
    """Attention, and the weights that were really used: `out = weights @ value`.

    Args: as in `attention`. It runs the dense implementation: weights are T·S numbers.

    Returns:
      out `[*B, T, N, Hv]` in query's dtype, and weights `[*B, N, T, S]` in float32 or wider,
      with sink and dropout in them. Rows sum to 1 without these, empty rows to 0.

    Raises: as in `attention`.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from jaxattn import attention_with_weights
      >>> out, weights = attention_with_weights(
      ...     jnp.array([[[2.0]]]), jnp.array([[[2.0]], [[1.0]]]), jnp.array([[[10.0]], [[4.0]]]))
      >>> print(np.array(out).round(4), np.array(weights).round(3))
      [[[9.2848]]] [[[0.881 0.119]]]

    Source: Vaswani et al. 2017, equation 1.
    """
    inputs = _door.enter(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        score_mod=score_mod,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        query_positions=query_positions,
        key_positions=key_positions,
        precision=precision,
    )
    partial, weights = dense_attention(inputs)
    if sink is not None:
        without = partial.lse
        partial = with_sink(partial, _door.sink(sink, inputs.sizes[2], without.dtype))
        share = jnp.exp(without - finite_or_zero(partial.lse))
        weights = weights * jnp.swapaxes(share, -1, -2)[..., None]
    return partial.out.astype(inputs.query.dtype), weights


def choose(inputs: Inputs, name: str | None) -> Implementation:
    """The named implementation or its reason; for None the first that accepts."""
    for entry in IMPLEMENTATIONS:
        if name not in (None, entry.name):
            continue
        reason = entry.refusal(inputs)
        if reason is None and (name is not None or entry.declines(inputs) is None):
            return entry
        if name is not None:
            raise ValueError(
                f"implementation={name!r} cannot do this: {reason}; implementation=None chooses "
                "one that can"
            )
    names = ", ".join(repr(entry.name) for entry in IMPLEMENTATIONS)
    raise ValueError(f"implementation must be None or one of {names}, got {name!r}")


def with_sink(partial: Partial, sink: Float[Array, "N"]) -> Partial:
    """Give every row one more logit, which takes weight and brings no value."""
    lse = jnp.broadcast_to(sink, partial.lse.shape)
    return merge(partial, Partial(jnp.zeros_like(partial.out), lse))
