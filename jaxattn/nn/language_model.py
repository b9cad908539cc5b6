"""A language model: tokens in, logits of the next token out. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import cache as caches
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.masks import Causal, Mask
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.feed_forward import dropout_module
from jaxattn.nn.initial import SMALL, residual
from jaxattn.nn.norm import LayerNorm
from jaxattn.nn.scanned import StackCache, first_own
from jaxattn.nn.stack import Stack
from jaxattn.nn.transformer import TransformerBlock
from jaxattn.positions import sinusoidal

POSITIONS = ("learned", "sinusoidal", "none")


class LanguageModel(nnx.Module):
    """A causal transformer: embedding + positions, L blocks, normalisation, head.

        x = E[t_i] + P[i];   x = block(x), L times;   logits = norm(x) W

    with W = Eᵀ where the head is tied. Every block is causal, and pre-norm unless `stack` is
    another; rotary positions, grouped heads, gated feed-forward and so on are the blocks' affair.

    Args:
      vocabulary: V, number of token ids.
      width: D.
      layers: L, number of blocks; for the default stack.
      num_heads: N, a divisor of D; for the default stack.
      context: length of the table of learned positions, the largest T.
      positions: "learned"; "sinusoidal", which has no largest T; or "none", for blocks that see
        positions themselves (rotary, ALiBi).
      tied: whether the head is the embedding, transposed, or has its own `[D, V]`.
      stack: blocks and last normalisation, finished; default L of `TransformerBlock`.
      dropout_rate: share dropped while training, in [0, 1): embeddings and, in the default stack,
        attention weights and what every sublayer adds.
      dtype: of the computation, for example bfloat16; normalisations, softmax and logits are
        float32 or wider. Default that of the parameters.
      param_dtype: of the parameters.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError: a size is no integer, or the rate is no number.
      ValueError: heads do not divide, other `positions`, the rate lies outside [0, 1), or both or
        neither of a stack and its sizes are given.

    Embeddings start with deviation 0.02 and kernels with variance 1/fan-in, those that write into
    the residual with 1/(2 L fan-in), so that its size does not grow with depth.

    Example:
      All tokens at once, and in two parts with a cache:

      >>> import jax
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import LanguageModel
      >>> def both(tokens):
      ...     model = LanguageModel(256, 16, layers=1, num_heads=2, context=8, rngs=nnx.Rngs(0))
      ...     first, cache = model.extend(tokens[:, :4], model.init_cache(batch=1, length=8))
      ...     second, cache = model.extend(tokens[:, 4:], cache)
      ...     return model(tokens), second
      >>> logits, last = jax.jit(both)(jnp.array([[72, 101, 108, 108, 111]]))
      >>> logits.shape, last.shape
      ((1, 5, 256), (1, 1, 256))

    Source: Radford et al. 2019, GPT-2, section 2.3 (arrangement, residual scale); Press and Wolf
      2017 (tied head).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        layers: int | None = None,
        num_heads: int | None = None,
        context: int | None = None,
        *,
        positions: str = "learned",
        tied: bool = True,
        stack: Stack | None = None,
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(vocabulary=vocabulary, width=width)
        _checks.choice("positions", positions, POSITIONS)
        _checks.stack_or_sizes(stack, width, layers=layers, num_heads=num_heads)
        options: dict[str, Any] = dict(dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.context, self.kind = context, positions
        self.embed = nnx.Embed(vocabulary, width, embedding_init=SMALL, **options)
        self.positions = nnx.data(None)
        if context is not None or positions == "learned":
            _checks.positive(context=context)
        if positions == "learned":
            self.positions = nnx.Embed(context or 1, width, embedding_init=SMALL, **options)
        self.dropout = dropout_module(dropout_rate, rngs)
        if stack is None:
            options["dropout_rate"] = dropout_rate
            stack = _default_stack(width, layers or 1, num_heads or 1, **options)
        self.stack = stack
        self.head = nnx.data(None)
        if not tied:
            self.head = nnx.Param(SMALL(rngs.params(), (width, vocabulary), param_dtype))

    def __call__(
        self,
        tokens: Int[Array, "*B T"],
        context: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | None = None,
        context_mask: Mask | Bool[Array, "..."] | None = None,
        positions: Int[Array, "*B T"] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T V"]:
        """`[*B, T] -> [*B, T, V]`: logits of the token after each token.

        Args:
          tokens: integers below V; a larger one gives NaN.
          context: `[*B, S, E]`, for blocks with cross-attention.
          mask: beside `Causal()`, for example `Segments` or `Lengths`.
          context_mask: of the tokens to the context.
          positions: of the tokens, `[T]` or `[*B, T]`; default 0, 1, ...; below 0 for padding.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.

        Raises:
          TypeError: tokens are no integers, or the mask is no `Mask`.
          ValueError: T is larger than the table of learned positions.
        """
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)
        causal = Causal() if mask is None else Causal() & mask
        tokens = _checks.token_ids(tokens)
        x = self.dropout(self._embedded(tokens, positions), **options)
        options |= dict(mask=causal, context_mask=context_mask, positions=positions)
        return self._logits(self.stack(x, context, **options))

    def init_cache(
        self,
        batch: int | tuple[int, ...],
        length: int,
        context: Float[Array, "*B S E"] | None = None,
        **options: Any,
    ) -> StackCache:
        """An empty cache for `extend`.

        Args:
          batch: *B.
          length: how many tokens it holds.
          context: `[*B, S, E]`, for blocks with cross-attention.
          **options: `context_valid` of `ResidualBlock.init_cache`, `wraps` and `dtype` of
            `MultiHeadAttention.init_cache`.

        Raises:
          ValueError: more tokens than the table of learned positions has.
        """
        if self.kind == "learned":
            _cache_checks.within_context(length, self.context, f"length = {length}")
        return self.stack.init_cache(batch, length, context, **options)

    def extend(
        self,
        tokens: Int[Array, "*B T"],
        cache: StackCache,
        *,
        mask: Mask | None = None,
        valid: Bool[Array, "*B T"] | None = None,
    ) -> tuple[Float[Array, "*B T V"], StackCache]:
        """Logits for T new tokens that follow those in the cache, and the cache after them.

        Step by step it is the call with all tokens at once. Nothing is dropped.

        Args:
          tokens: integers `[*B, T]`, any T.
          cache: from `init_cache` or an earlier call; not changed.
          mask: beside `Causal()`, by position over all tokens so far.
          valid: boolean `[*B, T]` or `[T]`, False for padding, which is not seen.

        Raises: as in the call, and as `MultiHeadAttention.extend`.
        """
        tokens = _checks.token_ids(tokens)
        _cache_checks.caches(cache, self.stack.layers, self.stack.scan)
        own = first_own(cache)
        _cache_checks.same_batch(tokens[..., None], own.length)
        places = caches.next_positions(own, tokens.shape[-1], valid)
        causal = Causal() if mask is None else Causal() & mask
        x, after = self.stack.extend(
            self._embedded(tokens, places), cache, mask=causal, valid=valid
        )
        return self._logits(x), after

    def _logits(self, x: Array) -> Array:
        weight = self.embed.embedding[...].T if self.head is None else self.head[...]
        return next_token_logits(x, weight, self.embed.dtype)

    def _embedded(self, tokens: Array, positions: Any) -> Array:
        x = self.embed(tokens)
        if self.kind == "none":
            return x
        if positions is None:
            positions = jnp.arange(tokens.shape[-1], dtype=jnp.int32)
            if self.positions is not None:
                _cache_checks.within_context(
                    tokens.shape[-1], self.context, f"shape {list(tokens.shape)}"
                )
        if self.positions is None:
            return add_positions(x, sinusoidal(positions, x.shape[-1]))
        return add_positions(x, self.positions(jnp.maximum(positions, 0)))


def _default_stack(width: int, layers: int, num_heads: int, **options: Any) -> Stack:
    """GPT-2's arrangement."""
    rngs, param_dtype = options.pop("rngs"), options["param_dtype"]

    def block(rngs: nnx.Rngs) -> TransformerBlock:
        out_init = residual(layers)
        return TransformerBlock(width, num_heads, out_kernel_init=out_init, rngs=rngs, **options)

    def norm(width: int) -> LayerNorm:
        return LayerNorm(width, param_dtype=param_dtype)

    return Stack(layers, block, make_norm=norm, rngs=rngs)


def add_positions(
    x: Float[Array, "*B T D"], table: Float[Array, "*#B T D"]
) -> Float[Array, "*B T D"]:
    """`x_i + table_i` for each example, in x's dtype."""
    return x + jnp.expand_dims(table.astype(x.dtype), tuple(range(x.ndim - table.ndim)))


def next_token_logits(
    x: Float[Array, "*B T D"], weight: Float[Array, "D V"], dtype: Any
) -> Float[Array, "*B T V"]:
    """`X W`, multiplied in `dtype`, summed and returned in float32 or wider."""
    wide = accumulator(dtype)
    return jnp.matmul(x.astype(dtype), weight.astype(dtype), preferred_element_type=wide)
