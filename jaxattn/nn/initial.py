"""How parameters start."""

from flax import nnx

FAN_IN = nnx.initializers.lecun_normal()
"""Variance 1/fan-in: a projection keeps the size of what it projects. Flax's default."""

SMALL = nnx.initializers.normal(0.02)
"""Deviation 0.02, for embeddings that are also the head: first logits are near 0."""


def residual(layers: int) -> nnx.Initializer:
    """Variance 1/(2 L fan-in): 2 L sublayers write into one residual, which keeps its size.

    Args:
      layers: L, the number of blocks.

    Source: Radford et al. 2019, GPT-2, section 2.3.
    """
    return nnx.initializers.variance_scaling(1 / (2 * layers), "fan_in", "truncated_normal")
