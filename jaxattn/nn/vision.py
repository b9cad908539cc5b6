"""Pictures as tokens. Letters: see `jaxattn._typing`; P is the number of patches."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate
from jaxattn._typing import Array, Float
from jaxattn.nn import _checks
from jaxattn.nn.feed_forward import dropout_module
from jaxattn.nn.initial import FAN_IN, SMALL
from jaxattn.nn.stack import Encoder


class VisionTransformer(nnx.Module):
    """An encoder over patches of a picture: one convolution, positions, blocks, one vector.

        x = [class token, patches(picture)] + P;   x = encoder(x);   out = head(pool(x))

    Args:
      image_size: (height, width) in pixels, multiples of the patch.
      patch: side of a patch in pixels.
      encoder: blocks and last normalisation, finished; its width is D.
      channels: of the picture.
      pool: "class": the first token, which is learned and stands for no patch; or "mean" of all
        patches, without such a token.
      classes: number of logits; None for the pooled vector itself.
      dropout_rate: share of the embedded patches dropped while training, in [0, 1).
      dtype: of the computation.
      param_dtype: of the parameters.
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError: a size is no integer.
      ValueError: the patch does not divide the picture, or another `pool`.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import Encoder, TransformerBlock, VisionTransformer
      >>> def logits(picture):
      ...     rngs = nnx.Rngs(0)
      ...     encoder = Encoder(2, lambda rngs: TransformerBlock(16, 2, rngs=rngs), rngs=rngs)
      ...     return VisionTransformer((8, 12), 4, encoder, classes=10, rngs=rngs)(picture)
      >>> nnx.eval_shape(logits, jnp.ones((3, 8, 12, 3))).shape
      (3, 10)

    Source: Dosovitskiy et al. 2021, "An image is worth 16x16 words", section 3.1.
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        patch: int,
        encoder: Encoder,
        *,
        channels: int = 3,
        pool: str = "class",
        classes: int | None = None,
        dropout_rate: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        height, width = image_size
        for name, side in (("image_size[0]", height), ("image_size[1]", width)):
            _checks.divides("patch", patch, name, side, "patches tile the picture")
        self.pool = _checks.choice("pool", pool, ("class", "mean"))
        self.picture = (height, width, channels)
        options: dict[str, Any] = dict(dtype=dtype, param_dtype=param_dtype, rngs=rngs)
        sides, features = (patch, patch), encoder.width
        self.patches = nnx.Conv(
            channels, features, sides, strides=sides, padding="VALID", kernel_init=FAN_IN, **options
        )
        tokens = (height // patch) * (width // patch) + (pool == "class")
        self.positions = nnx.Param(SMALL(rngs.params(), (tokens, features), param_dtype))
        self.class_token = nnx.data(None)
        if pool == "class":
            self.class_token = nnx.Param(jnp.zeros(features, param_dtype))
        self.dropout = dropout_module(dropout_rate, rngs)
        self.encoder = encoder
        self.head = nnx.data(None)
        if classes is not None:
            self.head = nnx.Linear(features, classes, **options)

    def __call__(
        self,
        picture: Float[Array, "*B h w c"],
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B D"]:
        """`[*B, height, width, channels] -> [*B, D]`, or `[*B, classes]` with a head.

        Args:
          picture: floating, in the order of TensorFlow and Flax: channels last.
          deterministic: comes before what the modules say.
          rngs: source of dropout keys; comes before the modules' own streams.
        """
        options: dict[str, Any] = dict(deterministic=deterministic, rngs=rngs)
        x = self.encoder(self.dropout(self.embed(picture), **options), **options)
        pooled = x[..., 0, :] if self.pool == "class" else jnp.mean(x, axis=-2)
        return pooled if self.head is None else self.head(pooled)

    def tokens(self, picture: Float[Array, "*B h w c"]) -> Float[Array, "*B P D"]:
        """Every token after the encoder, the class token first where there is one."""
        return self.encoder(self.embed(picture), deterministic=True)

    def embed(self, picture: Float[Array, "*B h w c"]) -> Float[Array, "*B P D"]:
        """Tokens before the encoder: patches row by row, class token, positions."""
        picture = _validate.floating("picture", picture, "[*B, height, width, channels]")
        if picture.shape[-3:] != self.picture:
            raise ValueError(
                f"picture must be [*B, height, width, channels] = [*B, {self.picture}], got shape "
                f"{list(picture.shape)}; channels are the last axis"
            )
        x = self.patches(picture)
        x = x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])
        first = None if self.class_token is None else self.class_token[...]
        return with_positions(x, self.positions[...], first)


def with_positions(
    x: Float[Array, "*B P D"], table: Float[Array, "S D"], first: Float[Array, "D"] | None
) -> Float[Array, "*B S D"]:
    """`[first, x] + table`, in x's dtype."""
    if first is not None:
        token = jnp.broadcast_to(first.astype(x.dtype), (*x.shape[:-2], 1, x.shape[-1]))
        x = jnp.concatenate([token, x], axis=-2)
    return x + jnp.expand_dims(table.astype(x.dtype), tuple(range(x.ndim - 2)))
