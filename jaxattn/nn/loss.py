"""What a language model is trained for."""

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, Int


def next_token_loss(logits: Float[Array, "*B T V"], tokens: Int[Array, "*B T"]) -> Float[Array, ""]:
    """Mean surprise, in nats, of each token given those before it.

        loss = -mean_i log softmax(logits_i)[tokens_{i+1}]

    Args:
      logits: `[*B, T, V]`: what the model says at each token about the next one.
      tokens: integers `[*B, T]`, the same tokens that the model was given.

    Returns:
      a scalar, float32 or wider.

    Raises:
      TypeError: logits are not floating, or tokens no integers.
      ValueError: shapes differ, or there is no next token (T < 2).

    Example:
      Without knowledge a loss is log V, here log 4:

      >>> import jax.numpy as jnp
      >>> from jaxattn.nn import next_token_loss
      >>> print(next_token_loss(jnp.zeros((3, 4)), jnp.array([0, 3, 1])).round(4))
      1.3863
    """
    logits = _validate.floating("logits", logits, "[*B, T, V]")
    tokens = _validate.integers("tokens", tokens, "[*B, T]")
    if logits.shape[:-1] != tokens.shape or tokens.ndim == 0 or tokens.shape[-1] < 2:
        raise ValueError(
            "logits must be [*B, T, V] and tokens [*B, T] with T ≥ 2, got shapes "
            f"{list(logits.shape)} and {list(tokens.shape)}"
        )
    logits = logits[..., :-1, :].astype(accumulator(logits.dtype))
    chosen = jnp.take_along_axis(logits, tokens[..., 1:, None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)
