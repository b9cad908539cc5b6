"""Sound as tokens. Letters: see `jaxattn._typing`; F is the number of frames, S = F / 2."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN
from jaxattn.nn.language_model import add_positions
from jaxattn.nn.stack import Encoder
from jaxattn.positions import sinusoidal


class AudioEncoder(nnx.Module):
    """An encoder over a spectrogram: two convolutions, the second one by twos, positions, blocks.

        x = φ(conv(φ(conv(spectrogram)))) + P;   out = encoder(x)

    with φ the exact GELU.

    Args:
      channels: of a frame, for example 80 mel bands.
      context: S, number of vectors; a spectrogram has 2·S frames.
      encoder: blocks and last normalisation, finished; its width is D.
      dtype: of the computation.
      param_dtype: of the parameters.
      rngs: the stream `params`.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Positions start as `sinusoidal`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import AudioEncoder, Encoder, TransformerBlock
      >>> rngs = nnx.Rngs(0)
      >>> encoder = Encoder(2, lambda rngs: TransformerBlock(8, 2, rngs=rngs), rngs=rngs)
      >>> model = AudioEncoder(5, 6, encoder, rngs=rngs)
      >>> model(jnp.ones((3, 12, 5), jnp.float32)).shape
      (3, 6, 8)

    Source: Radford et al. 2023, "Robust speech recognition via large-scale weak supervision"
      (Whisper), section 2.2.
    """

    def __init__(
        self,
        channels: int,
        context: int,
        encoder: Encoder,
        *,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        _checks.positive(channels=channels, context=context)
        self.frames = (2 * context, channels)
        width = encoder.width
        options: dict[str, Any] = dict(
            padding=1, kernel_init=FAN_IN, dtype=dtype, param_dtype=param_dtype, rngs=rngs
        )
        self.first = nnx.Conv(channels, width, (3,), **options)
        self.second = nnx.Conv(width, width, (3,), strides=(2,), **options)
        places = jnp.arange(context, dtype=jnp.int32)
        self.positions = nnx.Param(sinusoidal(places, width).astype(param_dtype))
        self.encoder = encoder

    def __call__(
        self,
        spectrogram: Float[Array, "*B F c"],
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B S D"]:
        """`[*B, F, channels] -> [*B, S, D]`.

        Args:
          spectrogram: floating, frames before channels.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.
        """
        x = _validate.floating("spectrogram", spectrogram, "[*B, F, channels]")
        if x.shape[-2:] != self.frames:
            raise ValueError(
                f"spectrogram must be [*B, F, channels] = [*B, {self.frames}], got shape "
                f"{list(x.shape)}; cut it, or pad it with silence"
            )
        x = exact_gelu(self.second(exact_gelu(self.first(x))))
        x = add_positions(x, self.positions[...])
        return self.encoder(x, deterministic=deterministic, rngs=rngs)


def exact_gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """`x Φ(x)`, by erf and not by tanh (Hendrycks and Gimpel 2016)."""
    return jax.nn.gelu(x, approximate=False)
