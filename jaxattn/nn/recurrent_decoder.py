"""A decoder that looks at the source before each token, or one that was told of it once.

Letters: see `jaxattn._typing`; V is the vocabulary, F the width of a state, E that of what the
encoder gives for each token.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import attention_weights, weighted_sum
from jaxattn._typing import Array, Bool, Float, Int
from jaxattn.nn import _checks
from jaxattn.nn.additive import AdditiveAttention, MultiplicativeAttention
from jaxattn.nn.gru import GRU, within


class Source(NamedTuple):
    """A source as a decoder reads it: for each token its state, its key, and whether it exists.

    `final` is one vector for the whole source. An empty one has no token, and `final` 0.
    """

    states: Float[Array, "*B S E"]
    keys: Float[Array, "*B S A"]
    present: Bool[Array, "*B S"]
    final: Float[Array, "*B E"]


class Reading(NamedTuple):
    """What a decoder knows after each token; `weights` are 0 where there is no attention."""

    state: Float[Array, "*B F"]
    context: Float[Array, "*B E"]
    weights: Float[Array, "*B S"]


class RecurrentDecoder(nnx.Module):
    """A GRU that writes tokens, and before each one looks at the source again.

        c_t = attention(s_{t-1}, source),   s_t = gru([y_{t-1}, c_t], s_{t-1}),
        logits_t = [s_t, c_t, y_{t-1}] W

    Args:
      vocabulary: V.
      width: of the embedding.
      hidden: F.
      source_features: E.
      attention: "additive", "multiplicative", or None: c_t is the encoder's final state, always.
      param_dtype: of the parameters.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer, or another attention.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import RecurrentDecoder
      >>> decoder = RecurrentDecoder(10, 4, 3, source_features=6, rngs=nnx.Rngs(0))
      >>> source = decoder.read(jnp.ones((2, 5, 6), jnp.float32), jnp.ones((2, 6), jnp.float32))
      >>> decoder(jnp.zeros((2, 7), jnp.int32), source).shape
      (2, 7, 10)

    Source: Bahdanau, Cho and Bengio 2014, section 3.1; without attention, Cho et al. 2014.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        hidden: int,
        source_features: int,
        *,
        attention: str | None = "additive",
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(vocabulary=vocabulary, width=width, source_features=source_features)
        if attention is not None:
            _checks.choice("attention", attention, ("additive", "multiplicative"))
        options: dict[str, Any] = dict(param_dtype=param_dtype, rngs=rngs)
        self.embed = nnx.Embed(vocabulary, width, **options)
        self.gru = GRU(width + source_features, hidden, **options)
        self.first = nnx.Linear(source_features, hidden, **options)
        self.out = nnx.Linear(hidden + source_features + width, vocabulary, **options)
        self.attention = nnx.data(None)
        if attention is not None:
            kind = AdditiveAttention if attention == "additive" else MultiplicativeAttention
            self.attention = kind(hidden, source_features, **options)

    def __call__(
        self, tokens: Int[Array, "*B T"], source: Source, state: Float[Array, "*B F"] | None = None
    ) -> Float[Array, "*B T V"]:
        """Teacher forcing: logits `[*B, T, V]` of the token after each of `tokens [*B, T]`."""
        embedded, readings = self._follow(tokens, source, state)
        return self._logits(embedded, readings.state, readings.context)

    def alignments(self, tokens: Int[Array, "*B T"], source: Source) -> Float[Array, "*B T S"]:
        """Attention weights `[*B, T, S]` while the decoder is given `tokens`."""
        return self._follow(tokens, source, None)[1].weights

    def read(
        self,
        states: Float[Array, "*B S E"],
        final: Float[Array, "*B E"],
        lengths: Int[Array, "*B"] | None = None,
    ) -> Source:
        """What an encoder gave, with keys projected once for all steps."""
        keys = states if self.attention is None else self.attention.keys(states)
        return Source(states, keys, within(lengths, states.shape[:-1]), final)

    def start(self, source: Source) -> Float[Array, "*B F"]:
        """The state before the first token: `tanh(final W + b)`."""
        return jnp.tanh(self.first(source.final))

    def step(
        self, state: Float[Array, "*B F"], tokens: Int[Array, "*B"], source: Source
    ) -> tuple[Float[Array, "*B F"], Float[Array, "*B V"]]:
        """One token more: the next state and the logits of the token after."""
        embedded = self.embed(tokens)
        reading = self._read_and_move(state, embedded, source)
        return reading.state, self._logits(embedded, reading.state, reading.context)

    def _follow(self, tokens: Any, source: Source, state: Array | None) -> tuple[Array, Reading]:
        """Embeddings `[*B, T, width]` of the tokens, and readings with T before the last axis."""
        embedded = self.embed(_checks.token_ids(tokens))
        state = self.start(source) if state is None else state

        def step(state: Array, token: Array) -> tuple[Array, Reading]:
            reading = self._read_and_move(state, token, source)
            return reading.state, reading

        _, readings = jax.lax.scan(step, state, jnp.moveaxis(embedded, -2, 0))
        return embedded, jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2), readings)

    def _read_and_move(self, state: Array, embedded: Array, source: Source) -> Reading:
        context, weights = self._context(state, source)
        return Reading(
            self.gru.step(jnp.concatenate([embedded, context], axis=-1), state), context, weights
        )

    def _context(self, state: Array, source: Source) -> tuple[Array, Array]:
        """c_t and its weights; an empty source has context 0."""
        if self.attention is None:
            return source.final, jnp.zeros(source.present.shape, state.dtype)
        scores = self.attention.scores(state[..., None, :], source.keys)
        weights = attention_weights(scores, source.present[..., None, :])
        context = weighted_sum(weights, source.states)[..., 0, :]
        return context.astype(state.dtype), weights[..., 0, :]

    def _logits(self, embedded: Array, state: Array, context: Array) -> Array:
        return self.out(jnp.concatenate([state, context, embedded], axis=-1))
