"""One head of self-attention, in both of the classic forms. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import attention_scores, attention_weights, self_attention, weighted_sum
from jaxattn._typing import Array, Bool, Float
from jaxattn.masks import Mask
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN
from jaxattn.path import mask_array


class SelfAttention(nnx.Module):
    """One head whose parameters are three matrices: `C = softmax((X W_q)(X W_k)ᵀ / √H) X W_v`.

    The function `jaxattn.self_attention`, with `w_query` `[D, H]`, `w_key` `[D, H]` and `w_value`
    `[D, Hv]` as parameters.

    Args:
      in_features: D.
      head_size: H; default D.
      value_size: Hv; default H.
      param_dtype: of the matrices; input must have it too.
      kernel_init: initializer of the matrices; default variance 1/D.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Causal
      >>> from jaxattn.nn import SelfAttention
      >>> head = SelfAttention(8, 4, rngs=nnx.Rngs(0))
      >>> head(jnp.ones((2, 5, 8), jnp.float32), mask=Causal()).shape
      (2, 5, 4)

    Source: Vaswani et al. 2017, equation 1.
    """

    def __init__(
        self,
        in_features: int,
        head_size: int | None = None,
        value_size: int | None = None,
        *,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        rngs: nnx.Rngs,
    ):
        head_size, value_size = _sizes(in_features, head_size, value_size)
        self.w_query = nnx.Param(kernel_init(rngs.params(), (in_features, head_size), param_dtype))
        self.w_key = nnx.Param(kernel_init(rngs.params(), (in_features, head_size), param_dtype))
        self.w_value = nnx.Param(kernel_init(rngs.params(), (in_features, value_size), param_dtype))

    def __call__(
        self, x: Float[Array, "*B T D"], *, mask: Mask | Bool[Array, "..."] | None = None
    ) -> Float[Array, "*B T Hv"]:
        """`[*B, T, D] -> [*B, T, Hv]`; `mask` and errors as in `jaxattn.self_attention`."""
        return self_attention(x, self.w_query[...], self.w_key[...], self.w_value[...], mask=mask)


class SelfAttentionLinear(nnx.Module):
    """One head whose parameters are three `nnx.Linear`: `Q = X W_q + b_q`, likewise K and V.

    With `use_bias=False` it is `SelfAttention`; see `linear_from_matrices`.

    Args:
      in_features: D.
      head_size: H; default D.
      value_size: Hv; default H.
      use_bias: whether the three projections have a bias.
      dtype: of the computation; default that of input and parameters together.
      param_dtype: of the parameters.
      kernel_init: initializer of the kernels; default variance 1/D.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: a size is no positive integer.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import SelfAttentionLinear
      >>> head = SelfAttentionLinear(8, 4, use_bias=True, rngs=nnx.Rngs(0))
      >>> head(jnp.ones((2, 5, 8), jnp.float32)).shape
      (2, 5, 4)

    Source: Vaswani et al. 2017, equation 1.
    """

    def __init__(
        self,
        in_features: int,
        head_size: int | None = None,
        value_size: int | None = None,
        *,
        use_bias: bool = False,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        rngs: nnx.Rngs,
    ):
        head_size, value_size = _sizes(in_features, head_size, value_size)
        options: dict[str, Any] = dict(
            use_bias=use_bias, dtype=dtype, param_dtype=param_dtype, kernel_init=kernel_init
        )
        self.query = nnx.Linear(in_features, head_size, rngs=rngs, **options)
        self.key = nnx.Linear(in_features, head_size, rngs=rngs, **options)
        self.value = nnx.Linear(in_features, value_size, rngs=rngs, **options)

    def __call__(
        self, x: Float[Array, "*B T D"], *, mask: Mask | Bool[Array, "..."] | None = None
    ) -> Float[Array, "*B T Hv"]:
        """`[*B, T, D] -> [*B, T, Hv]`; `mask` as in `jaxattn.self_attention`."""
        x = _checks.tokens_of_width("x", x, self.query.in_features, "in_features")
        query, key, value = self.query(x), self.key(x), self.value(x)
        scores = attention_scores(query, key)
        weights = attention_weights(scores, mask_array(mask, scores))
        return weighted_sum(weights, value).astype(query.dtype)


def linear_from_matrices(head: SelfAttention) -> SelfAttentionLinear:
    """The same head with three `nnx.Linear`: each kernel is the matrix, and there is no bias.

    Args:
      head: three matrices; not changed.

    Returns:
      a module of equal output.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.nn import SelfAttention, linear_from_matrices
      >>> head, x = SelfAttention(8, 4, rngs=nnx.Rngs(0)), jnp.ones((2, 5, 8), jnp.float32)
      >>> bool(jnp.allclose(linear_from_matrices(head)(x), head(x)))
      True
    """
    (in_features, head_size), value_size = head.w_query.shape, head.w_value.shape[-1]
    dtype = head.w_query.dtype
    linear = SelfAttentionLinear(
        in_features,
        head_size,
        value_size,
        param_dtype=dtype,
        kernel_init=nnx.initializers.zeros_init(),
        rngs=nnx.Rngs(0),
    )
    linear.query.kernel[...] = head.w_query[...]
    linear.key.kernel[...] = head.w_key[...]
    linear.value.kernel[...] = head.w_value[...]
    return linear


def _sizes(in_features: int, head_size: int | None, value_size: int | None) -> tuple[int, int]:
    head_size = in_features if head_size is None else head_size
    value_size = head_size if value_size is None else value_size
    _checks.positive(in_features=in_features, head_size=head_size, value_size=value_size)
    return head_size, value_size
