"""From one sequence to another. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.masks import Mask
from jaxattn.nn import _cache_checks, _checks
from jaxattn.nn.feed_forward import dropout_module
from jaxattn.nn.initial import SMALL
from jaxattn.nn.language_model import LanguageModel, add_positions
from jaxattn.nn.scanned import StackCache
from jaxattn.nn.stack import Encoder


class TextEncoder(nnx.Module):
    """Tokens to vectors that see each other: embedding + positions (+ kinds), norm, encoder.

        x = norm(E[t_i] + P[i] + K[k_i]);   out = encoder(x)

    Embeddings narrower than D (`embed_features`) are projected in between: `encoder(x W + b)`.

    Args:
      vocabulary: V, number of token ids.
      encoder: blocks and last normalisation, finished; its width is D.
      context: length of the table of learned positions; None for none (rotary blocks).
      kinds: number of kinds of tokens (BERT's segments); 0 for none.
      make_norm: of the normalisation of embeddings, from their width; None for none.
      embed_features: width of the embeddings, where it is not to be D (ALBERT).
      dropout_rate: share of embeddings dropped while training, in [0, 1).
      dtype: of the computation.
      param_dtype: of the parameters.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import Encoder, LayerNorm, TextEncoder, TransformerBlock
      >>> def bert(tokens):
      ...     rngs = nnx.Rngs(0)
      ...     block = lambda rngs: TransformerBlock(8, 2, norm="post", rngs=rngs)
      ...     encoder = Encoder(2, block, make_norm=None, rngs=rngs)
      ...     model = TextEncoder(
      ...         100, encoder, context=16, kinds=2, make_norm=LayerNorm, rngs=rngs)
      ...     return model(tokens, valid=tokens > 0)
      >>> nnx.eval_shape(bert, jnp.array([[5, 3, 0], [7, 0, 0]])).shape
      (2, 3, 8)

    Source: Devlin et al. 2019, "BERT", section 3; Lan et al. 2020, "ALBERT", section 3.1 (narrow
      embeddings; for its shared layers, `block` gives the same block each time).
    """

    def __init__(
        self,
        vocabulary: int,
        encoder: Encoder,
        *,
        context: int | None = None,
        kinds: int = 0,
        make_norm: Any = None,
        embed_features: int | None = None,
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(vocabulary=vocabulary)
        width = encoder.width if embed_features is None else embed_features
        _checks.positive(embed_features=width)
        self.context = context
        options: dict[str, Any] = dict(dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        self.projection = nnx.data(None)
        if embed_features is not None:
            self.projection = nnx.Linear(width, encoder.width, **options)
        options["embedding_init"] = SMALL
        self.embed = nnx.Embed(vocabulary, width, **options)
        self.positions = nnx.data(None if context is None else nnx.Embed(context, width, **options))
        self.kinds = nnx.data(nnx.Embed(kinds, width, **options) if kinds else None)
        self.norm = nnx.data(None if make_norm is None else make_norm(width))
        self.dropout = dropout_module(dropout_rate, rngs)
        self.encoder = encoder

    def __call__(
        self,
        tokens: Int[Array, "*B T"],
        kinds: Int[Array, "*B T"] | None = None,
        *,
        valid: Bool[Array, "*B T"] | None = None,
        mask: Mask | Bool[Array, "..."] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T] -> [*B, T, D]`.

        Args:
          tokens: integers below V.
          kinds: integers `[*B, T]`, for a model with kinds; default 0.
          valid: boolean `[*B, T]`, False for padding, which is not seen and sees nothing.
          mask: beside `valid`, as in `jaxattn.attention`.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.
        """
        tokens = _checks.token_ids(tokens)
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)
        x = self.dropout(self.embedded(tokens, kinds), **options)
        counted = jnp.arange(tokens.shape[-1], dtype=jnp.int32)
        positions = None if valid is None else valid_positions(counted, valid)
        return self.encoder(x, mask=mask, positions=positions, **options)

    def embedded(
        self, tokens: Int[Array, "*B T"], kinds: Int[Array, "*B T"] | None = None
    ) -> Float[Array, "*B T D"]:
        """Tokens before the encoder: with positions and kinds, normalised, projected."""
        x = self.embed(tokens)
        if self.positions is not None:
            _cache_checks.within_context(
                tokens.shape[-1], self.context, f"shape {list(tokens.shape)}"
            )
            counted = jnp.arange(tokens.shape[-1], dtype=jnp.int32)
            x = add_positions(x, self.positions(counted))
        if self.kinds is not None:
            x = add_positions(x, self.kinds(jnp.zeros_like(tokens) if kinds is None else kinds))
        x = x if self.norm is None else self.norm(x)
        return x if self.projection is None else self.projection(x)


class EncoderDecoder(nnx.Module):
    """An encoder, and a language model whose blocks attend to what it made.

    Args:
      encoder: any module `inputs -> [*B, S, E]`, for example a `TextEncoder`.
      decoder: a `LanguageModel` whose stack is a `Decoder`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import Decoder, Encoder, EncoderDecoder, FeedForward, LanguageModel
      >>> from jaxattn.nn import MultiHeadAttention, ResidualBlock, TextEncoder, TransformerBlock
      >>> from jaxattn.nn import generate
      >>> def block(rngs):
      ...     own, other = (MultiHeadAttention(2, 8, rngs=rngs) for _ in range(2))
      ...     return ResidualBlock(own, FeedForward(8, rngs=rngs), cross_attention=other)
      >>> def both(source, target):
      ...     rngs = nnx.Rngs(0)
      ...     encoder = Encoder(1, lambda rngs: TransformerBlock(8, 2, rngs=rngs), rngs=rngs)
      ...     decoder = Decoder(1, block, rngs=rngs)
      ...     model = EncoderDecoder(
      ...         TextEncoder(50, encoder, context=16, rngs=rngs),
      ...         LanguageModel(50, 8, context=16, stack=decoder, rngs=rngs))
      ...     cache = model.init_cache(1, 16, source)
      ...     written = generate(model, target[:, :1], steps=4, cache=cache)
      ...     return model(source, target), written.tokens
      >>> logits, tokens = nnx.eval_shape(both, jnp.array([[5, 6, 7]]), jnp.array([[1, 2]]))
      >>> logits.shape, tokens.shape
      ((1, 2, 50), (1, 4))

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(self, encoder: nnx.Module, decoder: LanguageModel):
        self.encoder, self.decoder = encoder, decoder

    def __call__(
        self,
        inputs: Array,
        tokens: Int[Array, "*B T"],
        *,
        valid: Bool[Array, "*B S"] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T V"]:
        """`inputs`, `[*B, T] -> [*B, T, V]`: logits of the token after each token.

        Args:
          inputs: what the encoder takes.
          tokens: integers `[*B, T]`, those before the ones to be said.
          valid: boolean `[*B, S]`, False for padding of the inputs.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.
        """
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)
        padding = {} if valid is None else dict(valid=valid)
        context = self.encoder(inputs, **padding, **options)
        seen = None if valid is None else valid[..., None, None, :]
        return self.decoder(tokens, context, context_mask=seen, **options)

    def init_cache(
        self,
        batch: int | tuple[int, ...],
        length: int,
        inputs: Array,
        *,
        valid: Bool[Array, "*B S"] | None = None,
        **options: Any,
    ) -> StackCache:
        """A cache for `extend`; the inputs are encoded here, once.

        Args:
          batch: *B.
          length: how many tokens it holds.
          inputs: what the encoder takes.
          valid: boolean `[*B, S]`, False for padding of the inputs.
          **options: of `MultiHeadAttention.init_cache`.
        """
        padding = {} if valid is None else dict(valid=valid)
        context = self.encoder(inputs, **padding, deterministic=True)
        return self.decoder.init_cache(batch, length, context, context_valid=valid, **options)

    def extend(
        self,
        tokens: Int[Array, "*B T"],
        cache: StackCache,
        *,
        valid: Bool[Array, "*B T"] | None = None,
    ) -> tuple[Float[Array, "*B T V"], StackCache]:
        """Logits for T new tokens, as `LanguageModel.extend`."""
        return self.decoder.extend(tokens, cache, valid=valid)


def valid_positions(positions: Int[Array, "T"], valid: Bool[Array, "*B T"]) -> Int[Array, "*B T"]:
    """Positions, and -1 for padding."""
    counted = jnp.expand_dims(positions, tuple(range(valid.ndim - 1)))
    return jnp.where(valid, counted, -1)
