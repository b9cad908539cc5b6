"""Many heads: projections around `jaxattn.attention`. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate, attention, attention_with_weights
from jaxattn import cache as caches
from jaxattn._typing import Array, Bias, Bool, Float, Int, PRNGKey
from jaxattn.cache import KVCache
from jaxattn.masks import Causal, Mask
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.attention_options import Projections, Scoring


class MultiHeadAttention(nnx.Module):
    """Multi-head attention: self, cross, grouped; parameters named and shaped as Flax's.

        head_h = attention(X W_q^h, Y W_k^g, Z W_v^g),   out = Σ_h head_h W_o^h,   g = h // G

    `query.kernel` `[D, N, H]`, `key.kernel` `[E, K, H]`, `value.kernel` `[E, K, Hv]`, `out.kernel`
    `[N, Hv, out_features]`, and their biases: a state of `flax.nnx.MultiHeadAttention` loads with
    `nnx.update`.

    Args:
      num_heads: N.
      in_features: D, the width of `inputs_q`.
      qkv_features: N·H, default D; must be a multiple of N.
      out_features: default D.
      num_kv_heads: K, a divisor of N; default N.
      in_kv_features: E, the width of `inputs_k` and `inputs_v`; default D.
      projections: biases, initializers, value size, precision: see `Projections`.
      scoring: normalised query and key, rotary, bias, mask, sink, softcap, scale: see `Scoring`.
      dropout_rate: share of attention weights dropped while training, in [0, 1).
      dtype: of the computation; default that of input and parameters together.
      param_dtype: of the parameters.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError: a size is no integer, or the rate is no number.
      ValueError: heads do not divide, the rate lies outside [0, 1), or rotary does not fit H.

    Example:
      All tokens at once, and in two parts with a cache:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Causal
      >>> from jaxattn.nn import MultiHeadAttention, Scoring
      >>> from jaxattn.positions import Rotary
      >>> def both(x):
      ...     layer = MultiHeadAttention(
      ...         4, 16, num_kv_heads=2, scoring=Scoring(rotary=Rotary()), rngs=nnx.Rngs(0))
      ...     cache = layer.init_cache(batch=3, length=8)
      ...     first, cache = layer.extend(x[:, :3], cache)
      ...     second, cache = layer.extend(x[:, 3:], cache)
      ...     return layer(x, mask=Causal()), jnp.concatenate([first, second], axis=1)
      >>> whole, parts = jax.jit(both)(jax.random.normal(jax.random.key(0), (3, 5, 16)))
      >>> bool(jnp.allclose(whole, parts, atol=1e-5))
      True

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (grouped); Dehghani et al.
      2023, "Scaling vision transformers to 22 billion parameters" (normalised query and key).
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        qkv_features: int | None = None,
        out_features: int | None = None,
        num_kv_heads: int | None = None,
        in_kv_features: int | None = None,
        *,
        projections: Projections = Projections(),  # noqa: B008
        scoring: Scoring = Scoring(),  # noqa: B008
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.in_features = in_features
        self.in_kv_features = in_features if in_kv_features is None else in_kv_features
        self.qkv_features = in_features if qkv_features is None else qkv_features
        self.out_features = in_features if out_features is None else out_features
        self.dropout_rate = _validate.rate("dropout_rate", dropout_rate)
        self.deterministic: bool | None = None
        self.precision = projections.precision
        self.cache_dtype = param_dtype if dtype is None else dtype
        self._check_sizes()
        head_size = self.qkv_features // num_heads
        _checks.rotary_fits(scoring.rotary, head_size)

        self._make(projections, head_size, dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.query_ln = nnx.data(scoring.norm(head_size, param_dtype))
        self.key_ln = nnx.data(scoring.norm(head_size, param_dtype))
        self.rotary, self.mask, self.bias = scoring.rotary, nnx.data(scoring.mask), scoring.bias
        self.softcap, self.scale = scoring.softcap, scoring.scale
        self.sink = nnx.Param(jnp.zeros(num_heads, param_dtype)) if scoring.sink else None
        self.rngs: Any = rngs.dropout.fork() if self.dropout_rate > 0 else None

    def __call__(
        self,
        inputs_q: Float[Array, "*B T D"],
        inputs_k: Float[Array, "*B S E"] | None = None,
        inputs_v: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
        bias: Bias | Float[Array, "..."] | None = None,
        positions: Int[Array, "*B T"] | None = None,
        key_positions: Int[Array, "*B S"] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T F"]:
        """`[*B, T, D]`, `[*B, S, E]` -> `[*B, T, out_features]`.

        Args:
          inputs_q: X.
          inputs_k: Y; default X (self-attention).
          inputs_v: Z; default Y.
          mask: as in `jaxattn.attention`: a `Mask`, or boolean `[T, S]` or `[*B, N, T, S]`.
          bias: added to scores, as in `jaxattn.attention`.
          positions: of `inputs_q`, `[T]` or `[*B, T]`; default 0, 1, ...; below 0 for padding.
          key_positions: of `inputs_k`; default `positions` in self-attention, else 0, 1, ...
          deterministic: comes before what the module says.
          rngs: source of the dropout key; comes before the module's own stream.
        """
        places = (positions, positions if inputs_k is None else key_positions)
        heads = self._heads(*self._inputs(inputs_q, inputs_k, inputs_v), *places)
        options = self._options(mask, bias, *places)
        return self.out(attention(*heads, **options, **self._dropout(deterministic, rngs)))

    def with_weights(
        self,
        inputs_q: Float[Array, "*B T D"],
        inputs_k: Float[Array, "*B S E"] | None = None,
        inputs_v: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
        bias: Bias | Float[Array, "..."] | None = None,
        positions: Int[Array, "*B T"] | None = None,
        key_positions: Int[Array, "*B S"] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> tuple[Float[Array, "*B T F"], Float[Array, "*B N T S"]]:
        """The call's output, and the weights that made it, `[*B, N, T, S]` in float32 or wider.

        Args: as in the call.
        """
        places = (positions, positions if inputs_k is None else key_positions)
        heads = self._heads(*self._inputs(inputs_q, inputs_k, inputs_v), *places)
        options = self._options(mask, bias, *places)
        dropout = self._dropout(deterministic, rngs)
        out, weights = attention_with_weights(*heads, **options, **dropout)
        return self.out(out), weights

    def init_cache(
        self, batch: int | tuple[int, ...], length: int, *, dtype: Any = None, wraps: bool = False
    ) -> KVCache:
        """An empty cache for `extend`.

        Args:
          batch: *B.
          length: C, how many tokens it holds.
          dtype: default the module's `dtype`, else `param_dtype`.
          wraps: a ring of C tokens, for a layer whose mask has a window of at most C.

        Raises:
          ValueError: wraps, and the layer's mask looks farther back than the ring.
        """
        if wraps:
            _cache_checks.window_fits(self.mask, length)
        head_size, value_size = self.key.out_features[-1], self.value.out_features[-1]
        dtype = self.cache_dtype if dtype is None else dtype
        sizes = (self.num_kv_heads, head_size, value_size)
        return caches.init(batch, length, *sizes, dtype=dtype, wraps=wraps)

    def extend(
        self,
        inputs: Float[Array, "*B T D"],
        cache: KVCache,
        *,
        mask: Mask | None = Causal(),  # noqa: B008
        valid: Bool[Array, "*B T"] | None = None,
    ) -> tuple[Float[Array, "*B T F"], KVCache]:
        """Self-attention of T new tokens, which see those in the cache and themselves.

        Step by step it is the call with all tokens at once and the same mask, which is causal here
        unless said otherwise, and none there. Nothing is dropped.

        Args:
          inputs: `[*B, T, D]`, any T.
          cache: from `init_cache` or an earlier call; not changed.
          mask: by position, over all tokens so far.
          valid: boolean `[*B, T]` or `[T]`, False for padding, which is not seen.

        Returns:
          `[*B, T, out_features]` and the cache after these tokens. Tokens that found no place in
          a full cache (where that is known only while the program runs) give NaN.

        Raises:
          TypeError: the mask is an array, which has no positions.
          ValueError: the cache is of another batch or other heads, or full.
        """
        _checks.positional("mask", mask, Mask, "jaxattn.masks.Dense(array)")
        inputs = _checks.tokens_of_width("inputs", inputs, self.in_features, "in_features")
        _cache_checks.same_batch(inputs, cache.length)
        positions = caches.next_positions(cache, inputs.shape[-2], valid)
        query, key, value = self._heads(inputs, inputs, inputs, positions, positions)
        (key, value, key_positions), after = caches.append_and_read(cache, key, value, valid)
        query = caches.or_nan(query, after, positions)
        options = self._options(mask, None, positions, key_positions)
        return self.out(attention(query, key, value, **options)), after

    def encode_context(
        self,
        inputs_k: Float[Array, "*B S E"],
        inputs_v: Float[Array, "*B S E"] | None = None,
        *,
        valid: Bool[Array, "*B S"] | None = None,
    ) -> KVCache:
        """Keys and values of a context, computed once: `attend` reads them.

        Args:
          inputs_k: Y.
          inputs_v: Z; default Y.
          valid: boolean `[*B, S]` or `[S]`, False for padding.
        """
        inputs_k, inputs_v = self._key_inputs(inputs_k, inputs_v)
        key = self._turned(self.key(inputs_k), self.key_ln, None)
        return caches.from_context(key, self.value(inputs_v), valid)

    def attend(
        self,
        inputs_q: Float[Array, "*B T D"],
        cache: KVCache,
        *,
        mask: Mask | None = None,
        positions: Int[Array, "*B T"] | None = None,
    ) -> Float[Array, "*B T F"]:
        """Attention to what is in the cache, without adding to it. Nothing is dropped.

        Args:
          inputs_q: X.
          cache: from `encode_context`, or of earlier tokens.
          mask: by position.
          positions: of `inputs_q`; default 0, 1, ...
        """
        _checks.positional("mask", mask, Mask, "jaxattn.masks.Dense(array)")
        inputs_q = _checks.tokens_of_width("inputs_q", inputs_q, self.in_features, "in_features")
        _cache_checks.same_batch(inputs_q, cache.length)
        query = self._turned(self.query(inputs_q), self.query_ln, positions)
        options = self._options(mask, None, positions, cache.positions)
        return self.out(attention(query, cache.key, cache.value, **options))

    def set_view(self, deterministic: bool | None = None) -> None:
        """For `nnx.view`.

        Args:
          deterministic: True turns dropout off.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def _check_sizes(self) -> None:
        _checks.positive(
            in_features=self.in_features,
            in_kv_features=self.in_kv_features,
            out_features=self.out_features,
        )
        heads = ("num_heads", self.num_heads)
        _checks.divides(*heads, "qkv_features", self.qkv_features, "it is N·H for a whole H")
        kv_heads = ("num_kv_heads", self.num_kv_heads)
        _checks.divides(*kv_heads, *heads, "each key head serves N / K query heads")

    def _make(self, projections: Projections, head_size: int, **options: Any) -> None:
        """The four projections."""
        value_size = head_size if projections.value_size is None else projections.value_size
        _checks.positive(value_size=value_size)
        init, out_init = projections.kernel_init, projections.out_kernel_init

        def linear(name: str, *features: Any, **how: Any) -> nnx.LinearGeneral:
            options_here = options | dict(use_bias=projections.biased(name), **how)
            return nnx.LinearGeneral(*features, precision=projections.precision, **options_here)

        few, width = self.num_kv_heads, self.in_kv_features
        self.query = linear(
            "query", self.in_features, (self.num_heads, head_size), kernel_init=init
        )
        self.key = linear("key", width, (few, head_size), kernel_init=init)
        self.value = linear("value", width, (few, value_size), kernel_init=init)
        heads = (self.num_heads, value_size)
        out_init = init if out_init is None else out_init
        self.out = linear("out", heads, self.out_features, axis=(-2, -1), kernel_init=out_init)

    def _inputs(self, inputs_q: Any, inputs_k: Any, inputs_v: Any) -> tuple[Array, Array, Array]:
        if inputs_k is None and inputs_v is not None:
            raise ValueError(
                "inputs_v came without inputs_k; give inputs_k, which is also the default of "
                "inputs_v"
            )
        inputs_k = inputs_q if inputs_k is None else inputs_k
        inputs_q = _checks.tokens_of_width("inputs_q", inputs_q, self.in_features, "in_features")
        return inputs_q, *self._key_inputs(inputs_k, inputs_v)

    def _key_inputs(self, inputs_k: Any, inputs_v: Any) -> tuple[Array, Array]:
        inputs_v = inputs_k if inputs_v is None else inputs_v
        width = (self.in_kv_features, "in_kv_features")
        inputs_k = _checks.tokens_of_width("inputs_k", inputs_k, *width)
        return inputs_k, _checks.tokens_of_width("inputs_v", inputs_v, *width)

    def _heads(
        self, inputs_q: Array, inputs_k: Array, inputs_v: Array, rows: Any, columns: Any
    ) -> tuple[Array, Array, Array]:
        """Query, key and value, normalised and turned where the layer does so."""
        if self.rotary is not None and rows is None:
            _checks.counted(inputs_q, inputs_k)
        query = self._turned(self.query(inputs_q), self.query_ln, rows)
        return query, self._turned(self.key(inputs_k), self.key_ln, columns), self.value(inputs_v)

    def _turned(self, x: Array, norm: Any, positions: Any) -> Array:
        x = x if norm is None else norm(x)
        if self.rotary is None:
            return x
        counted = jnp.arange(x.shape[-3], dtype=jnp.int32)
        return self.rotary(x, counted if positions is None else positions)

    def _options(self, mask: Any, bias: Any, rows: Any, columns: Any) -> dict[str, Any]:
        """What `attention` is told beside query, key and value."""
        return dict(
            mask=_checks.one_mask(mask, self.mask),
            bias=_checks.one_bias(bias, self.bias),
            scale=self.scale,
            softcap=self.softcap,
            sink=None if self.sink is None else self.sink[...],
            query_positions=rows,
            key_positions=columns,
            precision=self.precision,
        )

    def _dropout(self, deterministic: bool | None, rngs: Any) -> dict[str, Any]:
        if self.dropout_rate == 0 or _checks.deterministic(deterministic, self.deterministic):
            return {}
        stream = self.rngs if rngs is None else rngs
        key: PRNGKey = stream.dropout() if isinstance(stream, nnx.Rngs) else stream()
        return dict(dropout_rate=self.dropout_rate, dropout_key=key)
