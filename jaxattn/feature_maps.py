"""Feature maps of linear attention: what stands in for the exponential of a score.

A feature map is any function `[..., H] -> [..., F]`, best of positive features: then the weights
`φ(q) · φ(k)` are positive, and so is what they are divided by. Letters: see `jaxattn._typing`; F is
the number of features.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float, PRNGKey


def elu_plus_one(x: Float[Array, "*B H"]) -> Float[Array, "*B H"]:
    """`φ(x) = elu(x) + 1`: `x + 1` above 0, `exp(x)` below; positive everywhere.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from jaxattn.feature_maps import elu_plus_one
      >>> print(np.array(elu_plus_one(jnp.array([-1.0, 0.0, 2.0]))).round(3))
      [0.368 1.    3.   ]

    Source: Katharopoulos et al. 2020, equation 7.
    """
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))


def relu(x: Float[Array, "*B H"]) -> Float[Array, "*B H"]:
    """`φ(x) = max(x, 0)`: a query that no key shares a feature with attends to nothing.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.feature_maps import relu
      >>> print(relu(jnp.array([-1.0, 0.0, 2.0])))
      [0. 0. 2.]

    Source: Choromanski et al. 2021, section 2.2 (generalised attention).
    """
    return jnp.maximum(x, 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RandomFeatures:
    """Positive random features: `φ(x) · φ(y)` is `exp(x · y / √H)` on average.

        φ(x)_r = exp(w_r · x̂ - |x̂|² / 2) / √F,   x̂ = x / H^(1/4)

    With them linear attention estimates attention itself; the error falls as 1/√F, and grows as
    the exponential of |x̂|². `random_features` draws one.

    Args:
      directions: w, `[F, H]`.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from jaxattn.feature_maps import random_features
      >>> features = random_features(jax.random.key(0), head_size=4, count=20000)
      >>> x, y = jnp.array([[0.6, 0.0, -0.3, 0.5], [0.4, 0.8, -0.1, 0.0]])
      >>> estimate, exact = features(x) @ features(y), jnp.exp(x @ y / 2)
      >>> bool(abs(estimate / exact - 1) < 0.02)
      True

    Source: Choromanski et al. 2021, lemma 1.
    """

    directions: Float[Array, "F H"]

    def __call__(self, x: Float[Array, "*B H"]) -> Float[Array, "*B F"]:
        """`[..., H] -> [..., F]`, in float32 or wider."""
        count, size = self.directions.shape
        if x.shape[-1] != size:
            raise ValueError(
                f"directions must be [F, H] with H = {x.shape[-1]}, the head size of x "
                f"{list(x.shape)}, got shape {list(self.directions.shape)}; draw them with "
                f"random_features(key, head_size={x.shape[-1]}, count=F)"
            )
        wide = accumulator(x.dtype)
        x = x.astype(wide) / size**0.25
        along = jnp.matmul(x, self.directions.astype(wide).T)
        return jnp.exp(along - jnp.sum(x * x, axis=-1, keepdims=True) / 2) / count**0.5


def random_features(
    key: PRNGKey, head_size: int, count: int, *, dtype: jnp.dtype | type = jnp.float32
) -> RandomFeatures:
    """Draw directions, normal and orthogonal in groups of H, which makes the estimate better.

    Args:
      key: of `jax.random.key`.
      head_size: H.
      count: F; any number, best a multiple of H.
      dtype: of the directions.

    Returns:
      `RandomFeatures` with directions `[F, H]`; each of them is distributed as `N(0, I)`.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax
      >>> from jaxattn.feature_maps import random_features
      >>> random_features(jax.random.key(0), head_size=4, count=6).directions.shape
      (6, 4)

    Source: Choromanski et al. 2021, section 2.4 and algorithm 1.
    """
    for name, size in (("head_size", head_size), ("count", count)):
        if _validate.integer(name, size) < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    groups = -(-count // head_size)
    turn, length = jax.random.split(key)
    turned = jax.random.orthogonal(turn, head_size, (groups,), dtype)
    normal = jax.random.normal(length, (groups * head_size, head_size), dtype)
    lengths = jnp.linalg.norm(normal, axis=-1, keepdims=True)
    return RandomFeatures((turned.reshape(-1, head_size) * lengths)[:count])
