"""A block from finished modules: attention, perhaps to a context, feed-forward.

Letters: see `jaxattn._typing`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from flax import nnx

from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.cache import KVCache
from jaxattn.masks import Causal, Mask
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.feed_forward import dropout_module
from jaxattn.nn.multi_head import MultiHeadAttention
from jaxattn.nn.norm import LayerNorm
from jaxattn.nn.sublayer import ARRANGEMENTS, Sublayer, scale_parameter, scaled_by


class BlockCache(NamedTuple):
    """What a block remembers: of its own tokens, and of the context if it attends to one."""

    own: KVCache
    context: KVCache | None = None


class ResidualBlock(nnx.Module):
    """Self-attention, perhaps attention to a context, and feed-forward, from finished modules.

        pre:    x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
        post:   x = norm(x + attention(x)),   x = norm(x + feed_forward(x))

    with `x = x + cross_attention(norm(x), context)` in between where there is one.

    Args:
      attention: of the tokens to each other.
      feed_forward: any module `x -> x`.
      cross_attention: of the tokens to a context, or None.
      norm: "pre" or "post".
      make_norm: a function from D to a normalisation: `LayerNorm`, `RMSNorm`, or for example
        `functools.partial(RMSNorm, epsilon=1e-5)`.
      layer_scale: what each sublayer's output starts to be multiplied with, feature by feature
        (`attention_scale`, ...); None for nothing.
      dropout_rate: share dropped while training of what attention adds, in [0, 1); what
        feed-forward adds, that module drops itself.
      rngs: the stream `dropout` where the rate is above 0.

    Raises:
      TypeError: the rate is no number.
      ValueError: another `norm`, or the rate lies outside [0, 1).

    Example:
      A block as in Llama:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Causal
      >>> from jaxattn.nn import FeedForward, MultiHeadAttention, Projections, ResidualBlock
      >>> from jaxattn.nn import RMSNorm, Scoring
      >>> from jaxattn.positions import Rotary
      >>> def llama(x):
      ...     rngs = nnx.Rngs(0)
      ...     attention = MultiHeadAttention(4, 16, num_kv_heads=2, rngs=rngs,
      ...         projections=Projections(use_bias=False), scoring=Scoring(rotary=Rotary()))
      ...     swiglu = FeedForward(
      ...         16, 40, activation=jax.nn.silu, gated=True, use_bias=False, rngs=rngs)
      ...     return ResidualBlock(attention, swiglu, make_norm=RMSNorm)(x, mask=Causal())
      >>> nnx.eval_shape(llama, jnp.ones((3, 5, 16))).shape
      (3, 5, 16)

    Source: Vaswani et al. 2017, section 3.1; Xiong et al. 2020, "On layer normalization in the
      transformer architecture"; Touvron et al. 2021, "Going deeper with image transformers",
      section 2 (layer scale).
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: nnx.Module,
        *,
        cross_attention: MultiHeadAttention | None = None,
        norm: str = "pre",
        make_norm: Callable[[int], nnx.Module] = LayerNorm,
        layer_scale: float | None = None,
        dropout_rate: float = 0.0,
        rngs: nnx.Rngs | None = None,
    ):
        self.width = width = attention.in_features
        self.arrangement = _checks.choice("norm", norm, tuple(ARRANGEMENTS))
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = make_norm(width), make_norm(width)
        self.cross_attention: Any = nnx.data(cross_attention)
        self.cross_attention_norm = nnx.data(None if cross_attention is None else make_norm(width))
        param_dtype = attention.out.param_dtype
        scales = [scale_parameter(layer_scale, width, param_dtype) for _ in range(3)]
        self.attention_scale, self.feed_forward_scale = scales[0], scales[1]
        self.cross_attention_scale = None if cross_attention is None else scales[2]
        self.dropout = dropout_module(dropout_rate, rngs)

    def __call__(
        self,
        x: Float[Array, "*B T D"],
        context: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
        context_mask: Mask | Bool[Array, "..."] | None = None,
        positions: Int[Array, "*B T"] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D] -> [*B, T, D]`.

        Args:
          x: `[*B, T, D]`.
          context: `[*B, S, E]`, for a block with cross-attention.
          mask: of the tokens to each other, as in `jaxattn.attention`.
          context_mask: of the tokens to the context, likewise.
          positions: of the tokens, `[T]` or `[*B, T]`; default 0, 1, ...
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.
        """
        x = _checks.tokens_of_width("x", x, self.width, "width")
        _cache_checks.context_is_due(context, self.cross_attention)
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)

        def attend(x: Array) -> Array:
            out = self.attention(x, mask=mask, positions=positions, **options)
            return self.dropout(out, **options)

        def look(x: Array) -> Array:
            out = self.cross_attention(x, context, mask=context_mask, **options)
            return self.dropout(out, **options)

        def feed_forward(x: Array) -> Array:
            return self.feed_forward(x, **options)

        x = self._add(x, attend, "attention")
        if self.cross_attention is not None:
            x = self._add(x, look, "cross_attention")
        return self._add(x, feed_forward, "feed_forward")

    def init_cache(
        self,
        batch: int | tuple[int, ...],
        length: int,
        context: Float[Array, "*B S E"] | None = None,
        *,
        context_valid: Bool[Array, "*B S"] | None = None,
        **options: Any,
    ) -> BlockCache:
        """An empty cache for `extend`; the context's keys and values are computed here, once.

        Args:
          batch: *B.
          length: how many tokens it holds.
          context: `[*B, S, E]`, for a block with cross-attention.
          context_valid: boolean `[*B, S]` or `[S]`, False for padding.
          **options: of `MultiHeadAttention.init_cache`.
        """
        _cache_checks.context_is_due(context, self.cross_attention)
        own = self.attention.init_cache(batch, length, **options)
        if context is None:
            return BlockCache(own)
        return BlockCache(own, self.cross_attention.encode_context(context, valid=context_valid))

    def extend(
        self,
        x: Float[Array, "*B T D"],
        cache: BlockCache,
        *,
        mask: Mask | None = Causal(),  # noqa: B008
        valid: Bool[Array, "*B T"] | None = None,
    ) -> tuple[Float[Array, "*B T D"], BlockCache]:
        """The block for T new tokens; see `MultiHeadAttention.extend`. Nothing is dropped."""
        x = _checks.tokens_of_width("x", x, self.width, "width")
        after = []

        def attend(x: Array) -> Array:
            out, own = self.attention.extend(x, cache.own, mask=mask, valid=valid)
            after.append(own)
            return out

        def look(x: Array) -> Array:
            return self.cross_attention.attend(x, cache.context)

        def feed_forward(x: Array) -> Array:
            return self.feed_forward(x, deterministic=True)

        x = self._add(x, attend, "attention")
        if self.cross_attention is not None:
            x = self._add(x, look, "cross_attention")
        x = self._add(x, feed_forward, "feed_forward")
        return x, BlockCache(after[0], cache.context)

    def _add(self, x: Array, sublayer: Sublayer, name: str) -> Array:
        """One sublayer with its residual, normalisation and scale."""
        scale = getattr(self, f"{name}_scale")

        def scaled(x: Array) -> Array:
            out = sublayer(x)
            return out if scale is None else scaled_by(out, scale[...])

        return ARRANGEMENTS[self.arrangement](x, scaled, getattr(self, f"{name}_norm"))
