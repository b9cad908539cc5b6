"""Channel attention: what a whole image holds decides how much each channel counts.

Letters: see `jaxattn._typing`; T are the places of an image in any order, D its channels, R the
channels in between.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._one_head import present
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Bool, Float
from jaxattn.projection import project
from jaxattn.softmax import positive_or_one

Elementwise = Callable[[Array], Array]


def hard_sigmoid(x: Float[Array, "..."], slope: float = 1 / 6) -> Float[Array, "..."]:
    """A sigmoid of three straight lines: `clip(slope · x + 1/2, 0, 1)`.

    Args:
      x: any shape.
      slope: 1/6 (MobileNetV3, PyTorch) or 0.2 (Keras before 3, ONNX, Paddle).

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import hard_sigmoid
      >>> print(hard_sigmoid(jnp.array([-4.0, 0.0, 1.5])))
      [0.   0.5  0.75]

    Source: Courbariaux, Bengio and David 2015; Howard et al. 2019, section 5.2.
    """
    x = _validate.floating("x", x, "[...]")
    return jnp.minimum(jnp.maximum(slope * x + 0.5, 0), 1)


def squeeze(
    x: Float[Array, "*B T D"], mask: Bool[Array, "*B T"] | None = None
) -> Float[Array, "*B D"]:
    """What an image holds: the mean of each channel over its places.

    Args:
      x: `[*B, T, D]`.
      mask: boolean `[*B, T]` or `[T]`; True takes part.

    Returns:
      `[*B, D]` in x's dtype, summed in float32 or wider; 0 where no place takes part.

    Raises:
      TypeError: x is no floating array, or the mask is not boolean.
      ValueError: the mask is not `[*B, T]`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.channel import squeeze
      >>> print(squeeze(jnp.array([[1.0, 5.0], [3.0, 7.0]])))
      [2. 6.]

    Source: Hu, Shen and Sun 2018, equation 2.
    """
    x = _validate.floating("x", x, "[*B, T, D]")
    _validate.minimum_rank("x", x, 2, "[*B, T, D]")
    wide = accumulator(x.dtype)
    here = present(mask, x.shape[:-1])
    if here is None:
        total, count = x.astype(wide), jnp.asarray(x.shape[-2], wide)
    else:
        total = jnp.where(here[..., None], x, 0).astype(wide)
        count = jnp.sum(here, axis=-1, dtype=wide)[..., None]
    return (jnp.sum(total, axis=-2) / positive_or_one(count)).astype(x.dtype)


def excite(
    squeezed: Float[Array, "*B D"],
    w_reduce: Float[Array, "D R"],
    w_expand: Float[Array, "R D"],
    b_reduce: Float[Array, "R"] | None = None,
    b_expand: Float[Array, "D"] | None = None,
    *,
    activation: Elementwise = jax.nn.relu,
    gate: Elementwise = jax.nn.sigmoid,
) -> Float[Array, "*B D"]:
    """How much each channel counts: `gate(activation(s W_1 + b_1) W_2 + b_2)`.

    Args:
      squeezed: s, `[*B, D]`.
      w_reduce: W_1, `[D, R]`.
      w_expand: W_2, `[R, D]`.
      b_reduce: b_1, `[R]` or None.
      b_expand: b_2, `[D]` or None.
      activation: elementwise, in between.
      gate: elementwise, at the end: `jax.nn.sigmoid`, or `hard_sigmoid`.

    Returns:
      `[*B, D]`.

    Raises:
      TypeError: an argument is no floating array, or dtypes are mixed.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.channel import excite
      >>> print(excite(jnp.array([1.0, 2.0]), jnp.ones((2, 1)), jnp.zeros((1, 2))))
      [0.5 0.5]

    Source: Hu, Shen and Sun 2018, equation 3.
    """
    return gate(project(activation(project(squeezed, w_reduce, b_reduce)), w_expand, b_expand))


def channel_attention(
    x: Float[Array, "*B T D"],
    w_reduce: Float[Array, "D R"],
    w_expand: Float[Array, "R D"],
    b_reduce: Float[Array, "R"] | None = None,
    b_expand: Float[Array, "D"] | None = None,
    *,
    activation: Elementwise = jax.nn.relu,
    gate: Elementwise = jax.nn.sigmoid,
    mask: Bool[Array, "*B T"] | None = None,
) -> Float[Array, "*B T D"]:
    """Squeeze-and-excitation: each channel times a number that depends on the whole image.

        out = x ∘ gate(activation(mean_T(x) W_1 + b_1) W_2 + b_2)

    Args:
      x: `[*B, T, D]`; an image `[*B, height, width, D]` is reshaped to it.
      w_reduce: W_1, `[D, R]`.
      w_expand: W_2, `[R, D]`.
      b_reduce: b_1, `[R]` or None.
      b_expand: b_2, `[D]` or None.
      activation: elementwise, in between.
      gate: elementwise, at the end: `jax.nn.sigmoid`, or `hard_sigmoid`.
      mask: boolean `[*B, T]` or `[T]`, True takes part; other places change nothing and are 0.

    Returns:
      `[*B, T, D]` in x's dtype.

    Raises:
      TypeError: integer or mixed dtypes, a mask that is not boolean.
      ValueError: shapes that do not fit.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn import channel_attention
      >>> image = jnp.ones((2, 5, 5, 8))
      >>> weights = jnp.ones((8, 2)), jnp.ones((2, 8))
      >>> channel_attention(image.reshape(2, 25, 8), *weights).shape
      (2, 25, 8)

    Source: Hu, Shen and Sun 2018, "Squeeze-and-excitation networks", equations 2 to 4.
    """
    parameters = (w_reduce, w_expand, b_reduce, b_expand)
    gates = excite(squeeze(x, mask), *parameters, activation=activation, gate=gate)
    x = _validate.floating("x", x, "[*B, T, D]")
    here = present(mask, x.shape[:-1])
    if here is not None:
        x = jnp.where(here[..., None], x, 0)
    return x * gates[..., None, :]
