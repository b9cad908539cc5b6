"""Linear attention as a layer. Letters: see `jaxattn._typing`; F is the number of features."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxattn import LinearState, linear_attention, linear_attention_with_state
from jaxattn._typing import Array, Float
from jaxattn.feature_maps import elu_plus_one
from jaxattn.linear import FeatureMap
from jaxattn.masks import Causal, Mask
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN


class LinearAttention(nnx.Module):
    """Multi-head attention in time T: projections around `jaxattn.linear_attention`.

    `query.kernel` `[D, N, H]`, `key.kernel` and `value.kernel` `[D, K, H]`, `out.kernel`
    `[N, H, D]`, as in `MultiHeadAttention`.

    Args:
      num_heads: N.
      in_features: D.
      num_kv_heads: K, a divisor of N; default N.
      feature_map: φ, `[..., H] -> [..., F]`; see `jaxattn.feature_maps`. A `RandomFeatures` is
        kept as it is, and not trained.
      dtype: of the computation; default that of input and parameters together.
      param_dtype: of the parameters.
      kernel_init: of the kernels; default variance 1/fan-in.
      use_bias: whether the four projections have a bias.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError: a size is no integer.
      ValueError: heads do not divide.

    Example:
      A text at once, and the same token by token:

      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Causal
      >>> from jaxattn.nn import LinearAttention
      >>> layer = LinearAttention(2, 8, rngs=nnx.Rngs(0))
      >>> x = jnp.ones((3, 5, 8), jnp.float32)
      >>> layer(x, mask=Causal()).shape
      (3, 5, 8)
      >>> out, cache = layer.extend(x[:, :1], layer.init_cache(3))
      >>> out.shape
      (3, 1, 8)

    Source: Katharopoulos et al. 2020, "Transformers are RNNs".
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        num_kv_heads: int | None = None,
        *,
        feature_map: FeatureMap = elu_plus_one,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        kernel_init: nnx.Initializer = FAN_IN,
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        heads = ("num_heads", num_heads)
        _checks.divides(*heads, "in_features", in_features, "it is N·H for a whole H")
        why = "each key head serves N / K query heads"
        _checks.divides("num_kv_heads", num_kv_heads, *heads, why)
        options: dict[str, Any] = dict(
            dtype=dtype,
            param_dtype=param_dtype,
            kernel_init=kernel_init,
            use_bias=use_bias,
            rngs=rngs,
        )
        size = in_features // num_heads
        self.in_features = in_features
        is_function = jax.tree_util.all_leaves([feature_map])
        self.feature_map = feature_map if is_function else nnx.data(feature_map)
        self.query = nnx.LinearGeneral(in_features, (num_heads, size), **options)
        self.key = nnx.LinearGeneral(in_features, (num_kv_heads, size), **options)
        self.value = nnx.LinearGeneral(in_features, (num_kv_heads, size), **options)
        self.out = nnx.LinearGeneral((num_heads, size), in_features, axis=(-2, -1), **options)

    def __call__(
        self,
        inputs_q: Float[Array, "*B T D"],
        inputs_k: Float[Array, "*B S D"] | None = None,
        *,
        mask: Mask | None = None,
    ) -> Float[Array, "*B T D"]:
        """`[*B, T, D]`, `[*B, S, D]` -> `[*B, T, D]`.

        Args:
          inputs_q: where queries come from.
          inputs_k: where keys and values come from; default `inputs_q` (self-attention).
          mask: as in `jaxattn.linear_attention`: `Causal()`, `Lengths(...)`, or both.
        """
        heads = self._heads(inputs_q, inputs_q if inputs_k is None else inputs_k)
        return self.out(linear_attention(*heads, mask=mask, feature_map=self.feature_map))

    def init_cache(self, batch: int | tuple[int, ...], length: int | None = None) -> LinearState:
        """The state before any token, for `extend`; its size does not depend on a length."""
        batch = (batch,) if isinstance(batch, int) else tuple(batch)
        empty = jnp.zeros((*batch, 0, self.in_features), self.query.param_dtype)
        heads = self._heads(empty, empty)
        return linear_attention_with_state(*heads, feature_map=self.feature_map)[1]

    def extend(
        self, inputs: Float[Array, "*B T D"], cache: LinearState
    ) -> tuple[Float[Array, "*B T D"], LinearState]:
        """New tokens `[*B, T, D]`, each after all before it: their outputs and the next state."""
        heads = self._heads(inputs, inputs)
        out, cache = linear_attention_with_state(
            *heads, mask=Causal(), feature_map=self.feature_map, state=cache
        )
        return self.out(out), cache

    def _heads(self, inputs_q: Any, inputs_k: Any) -> tuple[Array, Array, Array]:
        width = (self.in_features, "in_features")
        inputs_q = _checks.tokens_of_width("inputs_q", inputs_q, *width)
        inputs_k = _checks.tokens_of_width("inputs_k", inputs_k, *width)
        return self.query(inputs_q), self.key(inputs_k), self.value(inputs_k)
