"""Three classifiers of 8 × 8 pictures with about as many parameters each.

Letters: see `jaxattn._typing`; pictures are `[B, 8, 8, 1]`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn.nn import Encoder, LayerNorm, SqueezeExcitation, TransformerBlock, VisionTransformer

CLASSES = 10
WIDTH, HEADS, LAYERS, PATCH = 48, 4, 2, 2  # of the vision Transformer: 16 patches
PLAIN, SQUEEZED = (24, 48, 104), (24, 48, 96)  # channels of the convolutions
DROPPED = 0.2


def vision_transformer(rngs: nnx.Rngs) -> VisionTransformer:
    """16 patches and a class token through two blocks."""

    def block(rngs: nnx.Rngs) -> TransformerBlock:
        return TransformerBlock(WIDTH, HEADS, dropout_rate=DROPPED, rngs=rngs)

    encoder = Encoder(LAYERS, block, rngs=rngs)
    size, dropped = (8, 8), DROPPED
    return VisionTransformer(
        size, PATCH, encoder, channels=1, classes=CLASSES, dropout_rate=dropped, rngs=rngs
    )


class Convolutions(nnx.Module):
    """Three convolutions of 3 × 3 at strides 1, 2 and 2, then the mean over places.

    Args:
      widths: channels of each.
      squeeze: whether `SqueezeExcitation` follows each.
      rngs: the stream `params`.
    """

    def __init__(self, widths: tuple[int, ...], squeeze: bool, *, rngs: nnx.Rngs):
        stages = zip((1, *widths), widths, (1, 2, 2), strict=False)
        self.convolutions = nnx.List(
            nnx.Conv(before, after, (3, 3), strides=(stride, stride), rngs=rngs)
            for before, after, stride in stages
        )
        self.norms = nnx.List(LayerNorm(width) for width in widths)
        self.gates = nnx.List(
            SqueezeExcitation(width, 8, rngs=rngs) if squeeze else nnx.identity for width in widths
        )
        self.dropout = nnx.Dropout(DROPPED)
        self.head = nnx.Linear(widths[-1], CLASSES, rngs=rngs)

    def __call__(
        self,
        picture: jax.Array,
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> jax.Array:
        """`[B, 8, 8, 1] -> [B, 10]`."""
        x = picture
        for convolution, norm, gate in zip(self.convolutions, self.norms, self.gates, strict=True):
            x = gate(nnx.gelu(norm(convolution(x))))
        pooled = jnp.mean(x, axis=(-3, -2))
        return self.head(self.dropout(pooled, deterministic=deterministic, rngs=rngs))


MODELS: dict[str, Callable[[nnx.Rngs], nnx.Module]] = {
    "vision Transformer": vision_transformer,
    "convolutions": lambda rngs: Convolutions(PLAIN, False, rngs=rngs),
    "convolutions with SE": lambda rngs: Convolutions(SQUEEZED, True, rngs=rngs),
}


def parameters(module: nnx.Module) -> int:
    """How many numbers are learned."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))


def class_attention(model: VisionTransformer, picture: jax.Array) -> jax.Array:
    """Weights of the class token over the patches in the last block, `[B, N, 4, 4]`."""
    x = model.embed(picture)
    *others, last = model.encoder.blocks
    for block in others:
        x = block(x, deterministic=True)
    _, weights = last.attention.with_weights(last.attention_norm(x), deterministic=True)
    return weights[..., 0, 1:].reshape(*weights.shape[:-2], 8 // PATCH, 8 // PATCH)
