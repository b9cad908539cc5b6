"""A language model: tokens in, logits of the next token out. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, Int
from jaxattn.masks import Causal, Mask
from jaxattn.nn import _checks
from jaxattn.nn.feed_forward import dropout_module
from jaxattn.nn.initial import SMALL, residual
from jaxattn.nn.norm import LayerNorm
from jaxattn.nn.transformer import TransformerBlock
from jaxattn.positions import sinusoidal


class LanguageModel(nnx.Module):
    """A causal transformer: embedding + positions, L blocks, normalisation, head.

        x = E[t_i] + P[i];   x = block(x), L times;   logits = norm(x) W

    with W = Eᵀ where the head is tied. Every block is pre-norm and causal.

    Args:
      vocabulary: V, number of token ids.
      width: D.
      layers: L, number of blocks.
      num_heads: N, a divisor of D.
      context: length of the table of learned positions, the largest T.
      positions: "learned", or "sinusoidal", which has no largest T.
      tied: whether the head is the embedding, transposed, or has its own `[D, V]`.
      dropout_rate: share dropped while training, in [0, 1): embeddings, attention weights, and
        what every sublayer adds.
      dtype: of the computation, for example bfloat16; normalisations, softmax and logits are
        float32 or wider. Default that of the parameters.
      param_dtype: of the parameters.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError: a size is no integer, or the rate is no number.
      ValueError: heads do not divide, other `positions`, or the rate lies outside [0, 1).

    Embeddings start with deviation 0.02 and kernels with variance 1/fan-in, those that write into
    the residual with 1/(2 L fan-in), so that its size does not grow with depth.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import LanguageModel
      >>> model = LanguageModel(256, 16, layers=2, num_heads=2, context=8, rngs=nnx.Rngs(0))
      >>> model(jnp.array([[72, 101, 108, 108, 111]])).shape
      (1, 5, 256)

    Source: Radford et al. 2019, GPT-2, section 2.3 (arrangement, residual scale); Press and Wolf
      2017 (tied head).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        layers: int,
        num_heads: int,
        context: int,
        *,
        positions: str = "learned",
        tied: bool = True,
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(vocabulary=vocabulary, width=width, layers=layers, context=context)
        _checks.choice("positions", positions, ("learned", "sinusoidal"))
        options: dict[str, Any] = dict(dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.context = context
        self.embed = nnx.Embed(vocabulary, width, embedding_init=SMALL, **options)
        self.positions = nnx.data(None)
        if positions == "learned":
            self.positions = nnx.Embed(context, width, embedding_init=SMALL, **options)
        self.dropout = dropout_module(dropout_rate, rngs)
        self.blocks = nnx.List(
            TransformerBlock(
                width,
                num_heads,
                dropout_rate=dropout_rate,
                out_kernel_init=residual(layers),
                **options,
            )
            for _ in range(layers)
        )
        self.norm = LayerNorm(width, param_dtype=param_dtype)
        self.head = nnx.data(None)
        if not tied:
            self.head = nnx.Param(SMALL(rngs.params(), (width, vocabulary), param_dtype))

    def __call__(
        self,
        tokens: Int[Array, "*B T"],
        *,
        mask: Mask | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T V"]:
        """`[*B, T] -> [*B, T, V]`: logits of the token after each token.

        Args:
          tokens: integers below V; a larger one gives NaN.
          mask: beside `Causal()`, for example `Segments` or `Lengths`.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.

        Raises:
          TypeError: tokens are no integers, or the mask is no `Mask`.
          ValueError: T is larger than the table of learned positions.
        """
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)
        causal = Causal() if mask is None else Causal() & mask
        x = self.dropout(self._embedded(_checks.token_ids(tokens)), **options)
        for block in self.blocks:
            x = block(x, mask=causal, **options)
        weight = self.embed.embedding[...].T if self.head is None else self.head[...]
        return next_token_logits(self.norm(x), weight, self.embed.dtype)

    def _embedded(self, tokens: Int[Array, "*B T"]) -> Float[Array, "*B T D"]:
        length = tokens.shape[-1]
        x, counted = self.embed(tokens), jnp.arange(length, dtype=jnp.int32)
        if self.positions is None:
            return add_positions(x, sinusoidal(counted, x.shape[-1]))
        if length > self.context:
            raise ValueError(
                f"tokens must be [*B, T] with T ≤ context = {self.context}, got shape "
                f"{list(tokens.shape)}; cut them, make a model of larger context, or choose "
                'positions="sinusoidal"'
            )
        return add_positions(x, self.positions(counted))


def add_positions(x: Float[Array, "*B T D"], table: Float[Array, "T D"]) -> Float[Array, "*B T D"]:
    """`x_i + table_i` for each example, in x's dtype."""
    return x + jnp.expand_dims(table.astype(x.dtype), tuple(range(x.ndim - 2)))


def next_token_logits(
    x: Float[Array, "*B T D"], weight: Float[Array, "D V"], dtype: Any
) -> Float[Array, "*B T V"]:
    """`X W`, multiplied in `dtype`, summed and returned in float32 or wider."""
    wide = accumulator(dtype)
    return jnp.matmul(x.astype(dtype), weight.astype(dtype), preferred_element_type=wide)
