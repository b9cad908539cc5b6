"""A gated recurrent unit over sequences of different lengths.

Letters: see `jaxattn._typing`; F is the width of the state. Gates stand in the order reset,
update, candidate, as in PyTorch and cuDNN.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate, project
from jaxattn._typing import Array, Float, Int
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN


class GRUWeights(NamedTuple):
    """`w_input [D, 3F]`, `w_state [F, 3F]` and their biases `[3F]`."""

    w_input: Float[Array, "D 3F"]
    w_state: Float[Array, "F 3F"]
    b_input: Float[Array, "3F"]
    b_state: Float[Array, "3F"]


class Recurrence(NamedTuple):
    """The state after each token, `[*B, T, F]`, 0 where nothing is, and after the last, `[*B, F]`.

    Read in reverse, the last token is the first of the sequence.
    """

    states: Float[Array, "*B T F"]
    final: Float[Array, "*B F"]


def gru_step(
    inputs: Float[Array, "*B 3F"],
    state: Float[Array, "*B F"],
    w_state: Float[Array, "F 3F"],
    b_state: Float[Array, "3F"],
) -> Float[Array, "*B F"]:
    """One step, from the input's projection `x W + b`:

        r = σ(x W_r + h U_r),   z = σ(x W_z + h U_z),   n = tanh(x W_n + r ∘ (h U_n)),
        h' = (1 - z) ∘ n + z ∘ h

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import gru_step
      >>> gru_step(jnp.ones(12), jnp.zeros(4), jnp.ones((4, 12)), jnp.zeros(12)).shape
      (4,)

    Source: Cho et al. 2014; with the reset behind the product, as cuDNN computes it.
    """
    recurrent = project(state, w_state, b_state)
    reset, update, candidate = jnp.split(inputs, 3, axis=-1)
    reset_state, update_state, candidate_state = jnp.split(recurrent, 3, axis=-1)
    reset = jax.nn.sigmoid(reset + reset_state)
    update = jax.nn.sigmoid(update + update_state)
    return (1 - update) * jnp.tanh(candidate + reset * candidate_state) + update * state


def gru(
    inputs: Float[Array, "*B T D"],
    weights: GRUWeights,
    *,
    state: Float[Array, "*B F"] | None = None,
    lengths: Int[Array, "*B"] | None = None,
    reverse: bool = False,
) -> Recurrence:
    """A gated recurrent unit along T: `h_t = step(x_t, h_{t-1})` for each example's own length.

    Args:
      inputs: `[*B, T, D]`; what lies beyond an example's length changes nothing.
      weights: `GRUWeights`.
      state: before the first token; default 0.
      lengths: integers `[*B]`; default T. An empty sequence keeps its first state.
      reverse: from the last token to the first.

    Returns:
      `Recurrence(states [*B, T, F], final [*B, F])`.

    Raises:
      TypeError: inputs are no floating array, or lengths no integers.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import GRUWeights, gru
      >>> weights = GRUWeights(jnp.ones((2, 9)), jnp.ones((3, 9)), jnp.zeros(9), jnp.zeros(9))
      >>> gru(jnp.ones((5, 2)), weights, lengths=jnp.array(4)).states[4]
      Array([0., 0., 0.], dtype=float32)

    Source: Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder".
    """
    inputs = _checks.tokens_of_width("inputs", inputs, weights.w_input.shape[0], "w_input.shape[0]")
    batch, here = inputs.shape[:-2], within(lengths, inputs.shape[:-1])
    inputs = project(jnp.where(here[..., None], inputs, 0), weights.w_input, weights.b_input)
    size = weights.w_state.shape[0]
    start = jnp.zeros((*batch, size), inputs.dtype) if state is None else state

    def step(state: Array, token: tuple[Array, Array]) -> tuple[Array, Array]:
        new = gru_step(token[0], state, weights.w_state, weights.b_state)
        state = jnp.where(token[1][..., None], new, state)
        return state, state

    along = (jnp.moveaxis(inputs, -2, 0), jnp.moveaxis(here, -1, 0))
    final, states = jax.lax.scan(step, start, along, reverse=reverse)
    return Recurrence(jnp.where(here[..., None], jnp.moveaxis(states, 0, -2), 0), final)


def within(lengths: Any, shape: tuple[int, ...]) -> Array:
    """Which tokens `[*B, T]` lie below their example's length."""
    if lengths is None:
        return jnp.ones(shape, bool)
    lengths = _validate.integers("lengths", lengths, "[*B]")
    if lengths.shape != shape[:-1]:
        raise ValueError(
            f"lengths must be [*B] = {list(shape[:-1])}, got shape {list(lengths.shape)}; one "
            "length for each sequence"
        )
    place = jnp.arange(shape[-1], dtype=jnp.int32).reshape((1,) * (len(shape) - 1) + shape[-1:])
    return place < lengths.astype(jnp.int32)[..., None]


class GRU(nnx.Module):
    """`gru` with its parameters.

    Args:
      in_features: D.
      hidden: F.
      param_dtype: of the parameters; input must have it too.
      kernel_init: of both kernels; default variance 1/fan-in.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import GRU
      >>> GRU(3, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 5, 3), jnp.float32)).final.shape
      (2, 4)
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        *,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        rngs: nnx.Rngs,
    ):
        _checks.positive(in_features=in_features, hidden=hidden)
        gates = 3 * hidden
        self.w_input = nnx.Param(kernel_init(rngs.params(), (in_features, gates), param_dtype))
        self.w_state = nnx.Param(kernel_init(rngs.params(), (hidden, gates), param_dtype))
        self.b_input = nnx.Param(jnp.zeros(gates, param_dtype))
        self.b_state = nnx.Param(jnp.zeros(gates, param_dtype))

    def __call__(self, inputs: Float[Array, "*B T D"], **options: Any) -> Recurrence:
        """`[*B, T, D] -> Recurrence`; `state`, `lengths` and `reverse` as in `gru`."""
        return gru(inputs, self.weights(), **options)

    def step(self, inputs: Float[Array, "*B D"], state: Float[Array, "*B F"]) -> Array:
        """The state after one more token."""
        weights = self.weights()
        projected = project(inputs, weights.w_input, weights.b_input)
        return gru_step(projected, state, weights.w_state, weights.b_state)

    def weights(self) -> GRUWeights:
        """The parameters as arrays."""
        return GRUWeights(
            self.w_input[...], self.w_state[...], self.b_input[...], self.b_state[...]
        )
