"""Encoder and decoder of the first translation models, with attention and without.

Without attention the decoder reads one fixed vector, the encoder's final state, whatever the length
of the source: the bottleneck that attention removed. Letters: see `jaxattn._typing`; V is the
vocabulary, F the width of a state, E that of what the encoder gives for each token.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn._typing import Array, Float, Int
from jaxattn.nn import _checks
from jaxattn.nn.gru import GRU
from jaxattn.nn.recurrent_decoder import RecurrentDecoder, Source
from jaxattn.nn.search import Beams, beam_search, greedy_search, repeated


class RecurrentEncoder(nnx.Module):
    """Embedding and a GRU, read in both directions or in one.

    Args:
      vocabulary: how many tokens there are.
      width: of the embedding.
      hidden: F, of a state; the encoder gives E = 2·F features, or F in one direction.
      bidirectional: whether a second GRU reads from the end.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import RecurrentEncoder
      >>> encoder = RecurrentEncoder(10, 4, 3, rngs=nnx.Rngs(0))
      >>> states, final = nnx.jit(encoder)(jnp.zeros((2, 5), jnp.int32), lengths=jnp.array([5, 2]))
      >>> states.shape, final.shape
      ((2, 5, 6), (2, 6))

    Source: Bahdanau, Cho and Bengio 2014, section 3.2.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        hidden: int,
        *,
        bidirectional: bool = True,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(vocabulary=vocabulary, width=width, hidden=hidden)
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        self.features = 2 * hidden if bidirectional else hidden
        self.embed = nnx.Embed(vocabulary, width, **options)
        self.forward = GRU(width, hidden, **options)
        self.backward = GRU(width, hidden, **options) if bidirectional else nnx.data(None)

    def __call__(
        self, tokens: Int[Array, "*B S"], lengths: Int[Array, "*B"] | None = None
    ) -> tuple[Float[Array, "*B S E"], Float[Array, "*B E"]]:
        """Each token's state `[*B, S, E]`, 0 beyond the length, and the final states `[*B, E]`.

        Both are 0 for an empty sequence.
        """
        inputs = self.embed(_checks.token_ids(tokens))
        readings = [self.forward(inputs, lengths=lengths)]
        if self.backward is not None:
            readings.append(self.backward(inputs, lengths=lengths, reverse=True))
        states, finals = zip(*readings, strict=True)
        return jnp.concatenate(states, axis=-1), jnp.concatenate(finals, axis=-1)


class RecurrentEncoderDecoder(nnx.Module):
    """From a sequence to a sequence: `RecurrentEncoder` and `RecurrentDecoder`.

    Args:
      source_vocabulary: how many tokens the source has.
      target_vocabulary: V.
      width: of both embeddings.
      hidden: F, of each GRU.
      bidirectional: whether the encoder reads from both ends.
      attention: "additive", "multiplicative" or None, as in `RecurrentDecoder`.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer, or another attention.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import RecurrentEncoderDecoder
      >>> model = RecurrentEncoderDecoder(10, 12, width=4, hidden=3, rngs=nnx.Rngs(0))
      >>> source, target = jnp.zeros((2, 5), jnp.int32), jnp.zeros((2, 7), jnp.int32)
      >>> nnx.jit(model)(source, target, lengths=jnp.array([5, 2])).shape
      (2, 7, 12)

    Source: Bahdanau, Cho and Bengio 2014.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        width: int,
        hidden: int,
        bidirectional: bool = True,
        attention: str | None = "additive",
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        self.encoder = RecurrentEncoder(
            source_vocabulary, width, hidden, bidirectional=bidirectional, **options
        )
        features = self.encoder.features
        self.decoder = RecurrentDecoder(
            target_vocabulary, width, hidden, features, attention=attention, **options
        )

    def __call__(
        self,
        source: Int[Array, "*B S"],
        target: Int[Array, "*B T"],
        *,
        lengths: Int[Array, "*B"] | None = None,
    ) -> Float[Array, "*B T V"]:
        """Teacher forcing: logits `[*B, T, V]` of the token after each of `target`.

        Args:
          source: integers `[*B, S]`.
          target: integers `[*B, T]`, the start token first.
          lengths: of the sources, `[*B]`; default S. An empty source is the vector 0.
        """
        return self.decoder(target, self.read(source, lengths))

    def read(self, source: Int[Array, "*B S"], lengths: Int[Array, "*B"] | None = None) -> Source:
        """The source as the decoder reads it."""
        states, final = self.encoder(source, lengths)
        return self.decoder.read(states, final, lengths)

    def greedy(
        self,
        source: Int[Array, "*B S"],
        lengths: Int[Array, "*B"] | None = None,
        *,
        start: int,
        end: int,
        length: int,
    ) -> Int[Array, "*B L"]:
        """The most probable token each time; see `greedy_search`."""
        read = self.read(source, lengths)
        first = jnp.full(read.final.shape[:-1], start, jnp.int32)

        def step(state: Array, tokens: Array) -> tuple[Array, Array]:
            return self.decoder.step(state, tokens, read)

        return greedy_search(step, self.decoder.start(read), first, end=end, length=length)

    def beam(
        self,
        source: Int[Array, "*B S"],
        lengths: Int[Array, "*B"] | None = None,
        *,
        start: int,
        end: int,
        length: int,
        beams: int,
        length_penalty: float = 0.0,
    ) -> Beams:
        """The most probable sequences that a beam finds; see `beam_search`."""
        read = self.read(source, lengths)
        first = jnp.full(read.final.shape[:-1], start, jnp.int32)
        each = jax.tree.map(lambda x: repeated(x, first.ndim, beams), read)

        def step(state: Array, tokens: Array) -> tuple[Array, Array]:
            return self.decoder.step(state, tokens, each)

        options: dict[str, Any] = dict(beams=beams, length_penalty=length_penalty)
        return beam_search(step, self.decoder.start(read), first, end=end, length=length, **options)
