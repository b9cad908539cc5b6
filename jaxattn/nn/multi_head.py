"""Many heads: projections around `jaxattn.attention`. Letters: see `jaxattn._typing`."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from jaxattn import _validate, attention
from jaxattn._typing import Array, Bias, Bool, Float, Precision, PRNGKey
from jaxattn.masks import Mask
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN
from jaxattn.nn.norm import LayerNorm


class MultiHeadAttention(nnx.Module):
    """Multi-head attention: self, cross, grouped; parameters named and shaped as Flax's.

        head_h = attention(X W_q^h, Y W_k^g, Z W_v^g),   out = Σ_h head_h W_o^h,   g = h // G

    `query.kernel` `[D, N, H]`, `key.kernel` and `value.kernel` `[E, K, H]`, `out.kernel`
    `[N, H, out_features]`, and their biases: a state of `flax.nnx.MultiHeadAttention` loads with
    `nnx.update`.

    Args:
      num_heads: N.
      in_features: D, the width of `inputs_q`.
      qkv_features: N·H, default D; must be a multiple of N.
      out_features: default D.
      num_kv_heads: K, a divisor of N; default N.
      in_kv_features: E, the width of `inputs_k` and `inputs_v`; default D.
      dtype: of the computation; default that of input and parameters together.
      param_dtype: of the parameters.
      dropout_rate: share of attention weights dropped while training, in [0, 1).
      deterministic: True turns dropout off; None leaves it to `train()`, `eval()` or the call.
      precision: of all products, as in `jax.lax.dot_general`.
      kernel_init: of the kernels; default variance 1/fan-in.
      out_kernel_init: of `out.kernel`; default `kernel_init`.
      use_bias: whether the four projections have a bias.
      normalize_qk: a LayerNorm without bias over each head's query and key (`query_ln`, `key_ln`).
      rngs: streams `params`, and `dropout` where the rate is above 0.

    Raises:
      TypeError: a size is no integer, or the rate is no number.
      ValueError: heads do not divide, or the rate lies outside [0, 1).

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> from jaxattn.masks import Causal
      >>> from jaxattn.nn import MultiHeadAttention
      >>> layer = MultiHeadAttention(4, 16, num_kv_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((3, 5, 16), jnp.float32), mask=Causal()).shape
      (3, 5, 16)

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (grouped); Dehghani et al.
      2023, "Scaling vision transformers to 22 billion parameters" (normalised query and key).
    """

    def __init__(
        self,
        num_heads: int,
        in_features: int,
        qkv_features: int | None = None,
        out_features: int | None = None,
        num_kv_heads: int | None = None,
        in_kv_features: int | None = None,
        *,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        dropout_rate: float = 0.0,
        deterministic: bool | None = None,
        precision: Precision = None,
        kernel_init: nnx.Initializer = FAN_IN,
        out_kernel_init: nnx.Initializer | None = None,
        use_bias: bool = True,
        normalize_qk: bool = False,
        rngs: nnx.Rngs,
    ):
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.in_features = in_features
        self.in_kv_features = in_features if in_kv_features is None else in_kv_features
        self.qkv_features = in_features if qkv_features is None else qkv_features
        self.out_features = in_features if out_features is None else out_features
        self.dropout_rate = _validate.rate("dropout_rate", dropout_rate)
        self.deterministic = deterministic
        self.precision = precision
        self._check_sizes()

        options: dict[str, Any] = dict(
            dtype=dtype, param_dtype=param_dtype, precision=precision, use_bias=use_bias, rngs=rngs
        )
        head_size = self.qkv_features // num_heads
        query_heads, key_heads = (num_heads, head_size), (self.num_kv_heads, head_size)
        width, key_width = self.in_features, self.in_kv_features
        self.query = nnx.LinearGeneral(width, query_heads, kernel_init=kernel_init, **options)
        self.key = nnx.LinearGeneral(key_width, key_heads, kernel_init=kernel_init, **options)
        self.value = nnx.LinearGeneral(key_width, key_heads, kernel_init=kernel_init, **options)
        self.query_ln = self.key_ln = nnx.data(None)
        if normalize_qk:
            self.query_ln = LayerNorm(head_size, use_bias=False, param_dtype=param_dtype)
            self.key_ln = LayerNorm(head_size, use_bias=False, param_dtype=param_dtype)
        out_init = kernel_init if out_kernel_init is None else out_kernel_init
        self.out = nnx.LinearGeneral(
            query_heads, self.out_features, axis=(-2, -1), kernel_init=out_init, **options
        )
        self.rngs: Any = rngs.dropout.fork() if self.dropout_rate > 0 else None

    def __call__(
        self,
        inputs_q: Float[Array, "*B T D"],
        inputs_k: Float[Array, "*B S E"] | None = None,
        inputs_v: Float[Array, "*B S E"] | None = None,
        *,
        mask: Mask | Bool[Array, "..."] | None = None,
        bias: Bias | Float[Array, "..."] | None = None,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> Float[Array, "*B T F"]:
        """`[*B, T, D]`, `[*B, S, E]` -> `[*B, T, out_features]`.

        Args:
          inputs_q: X.
          inputs_k: Y; default X (self-attention).
          inputs_v: Z; default Y.
          mask: as in `jaxattn.attention`: a `Mask`, or boolean `[T, S]` or `[*B, N, T, S]`.
          bias: added to scores, as in `jaxattn.attention`.
          deterministic: comes before what the module says.
          rngs: source of the dropout key; comes before the module's own stream.
        """
        inputs_q, inputs_k, inputs_v = self._inputs(inputs_q, inputs_k, inputs_v)
        query, key, value = self.query(inputs_q), self.key(inputs_k), self.value(inputs_v)
        if self.query_ln is not None and self.key_ln is not None:
            query, key = self.query_ln(query), self.key_ln(key)
        dropout_key = self._dropout_key(deterministic, rngs)
        heads = attention(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            dropout_rate=0.0 if dropout_key is None else self.dropout_rate,
            dropout_key=dropout_key,
            precision=self.precision,
        )
        return self.out(heads)

    def set_view(self, deterministic: bool | None = None) -> None:
        """For `nnx.view`.

        Args:
          deterministic: True turns dropout off.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def _check_sizes(self) -> None:
        _checks.positive(
            in_features=self.in_features,
            in_kv_features=self.in_kv_features,
            out_features=self.out_features,
        )
        heads = ("num_heads", self.num_heads)
        _checks.divides(*heads, "qkv_features", self.qkv_features, "it is N·H for a whole H")
        kv_heads = ("num_kv_heads", self.num_kv_heads)
        _checks.divides(*kv_heads, *heads, "each key head serves N / K query heads")

    def _inputs(self, inputs_q: Any, inputs_k: Any, inputs_v: Any) -> tuple[Array, Array, Array]:
        if inputs_k is None and inputs_v is not None:
            raise ValueError(
                "inputs_v came without inputs_k; give inputs_k, which is also the default of "
                "inputs_v"
            )
        inputs_k = inputs_q if inputs_k is None else inputs_k
        inputs_v = inputs_k if inputs_v is None else inputs_v
        kv_width = (self.in_kv_features, "in_kv_features")
        return (
            _checks.tokens_of_width("inputs_q", inputs_q, self.in_features, "in_features"),
            _checks.tokens_of_width("inputs_k", inputs_k, *kv_width),
            _checks.tokens_of_width("inputs_v", inputs_v, *kv_width),
        )

    def _dropout_key(
        self, deterministic: bool | None, rngs: nnx.Rngs | nnx.RngStream | None
    ) -> PRNGKey | None:
        if self.dropout_rate == 0:
            return None
        if _checks.deterministic(deterministic, self.deterministic):
            return None
        stream = self.rngs if rngs is None else rngs
        return stream.dropout() if isinstance(stream, nnx.Rngs) else stream()
