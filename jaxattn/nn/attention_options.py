"""What `MultiHeadAttention` can be given beside its sizes, grouped. Letters: `jaxattn._typing`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flax import nnx

from jaxattn._typing import Bias, Precision
from jaxattn.biases import ALiBi, RelativePosition, T5Buckets, alibi_slopes
from jaxattn.masks import Mask
from jaxattn.nn import _checks
from jaxattn.nn.initial import FAN_IN
from jaxattn.nn.norm import LayerNorm
from jaxattn.positions import Rotary

ALL = ("query", "key", "value", "out")


class Projections(NamedTuple):
    """The four projections of an attention layer.

    Args:
      use_bias: True or False for all, or the names of those that have one, among "query", "key",
        "value" and "out".
      kernel_init: of the kernels; default variance 1/fan-in.
      out_kernel_init: of the output's kernel; default `kernel_init`.
      value_size: Hv; default H.
      precision: of all products, as in `jax.lax.dot_general`.

    Example:
      >>> from jaxattn.nn import Projections
      >>> Projections(use_bias=("query", "key", "value")).biased("out")
      False
    """

    use_bias: bool | tuple[str, ...] = True
    kernel_init: nnx.Initializer = FAN_IN
    out_kernel_init: nnx.Initializer | None = None
    value_size: int | None = None
    precision: Precision = None

    def biased(self, name: str) -> bool:
        """Whether the projection of this name has a bias."""
        if isinstance(self.use_bias, bool):
            return self.use_bias
        for chosen in self.use_bias:
            _checks.choice("use_bias", chosen, ALL)
        return name in self.use_bias


class Scoring(NamedTuple):
    """How queries score keys.

    Args:
      normalize_qk: a function from H to a module that normalises each head's query and key
        (`query_ln`, `key_ln`), for example `RMSNorm`; True is Flax's, a LayerNorm without bias.
      rotary: turns queries and keys by their positions; after the normalisation.
      bias: a function without arguments that gives a `jaxattn.biases.Bias`: `ALiBiBias(N)`, or a
        `RelativeBias`, which learns. Layers given the same one share it.
      mask: a `Mask` beside the one of each call, for example `SlidingWindow(left=511, right=0)`.
      sink: whether each head learns an extra logit without a value (parameter `sink`, from 0).
      softcap: as in `jaxattn.attention`.
      scale: likewise; default 1/√H.

    Example:
      >>> from jaxattn.masks import SlidingWindow
      >>> from jaxattn.nn import RMSNorm, Scoring
      >>> from jaxattn.positions import Rotary
      >>> scoring = Scoring(RMSNorm, Rotary(base=1e6), mask=SlidingWindow(511, 0), sink=True)
    """

    normalize_qk: bool | Callable[[int], nnx.Module] = False
    rotary: Rotary | None = None
    bias: Callable[[], Bias] | None = None
    mask: Mask | None = None
    sink: bool = False
    softcap: float | None = None
    scale: float | None = None

    def norm(self, size: int, param_dtype: Any) -> nnx.Module | None:
        """A module for queries or keys of this head size, or None."""
        if self.normalize_qk is True:
            return LayerNorm(size, use_bias=False, param_dtype=param_dtype)
        return self.normalize_qk(size) if self.normalize_qk else None


class ALiBiBias(nnx.Module):
    """`jaxattn.biases.ALiBi` with the paper's slopes; nothing is learned.

    Args:
      num_heads: N.

    Raises:
      TypeError, ValueError: N is no positive integer.

    Example:
      >>> from jaxattn.nn import ALiBiBias
      >>> print(ALiBiBias(2)().slopes)
      [0.0625     0.00390625]

    Source: Press et al. 2022, "Train short, test long", section 3.
    """

    def __init__(self, num_heads: int):
        _checks.positive(num_heads=num_heads)
        self.num_heads = num_heads

    def __call__(self) -> ALiBi:
        """The bias."""
        return ALiBi(alibi_slopes(self.num_heads))


class RelativeBias(nnx.Module):
    """`jaxattn.biases.RelativePosition` with a learned `table` `[N, R]`.

    Args:
      num_heads: N.
      buckets: of distances; default T5's 32.
      param_dtype: of the table.
      rngs: the stream `params` is drawn from.

    Raises:
      TypeError, ValueError: N is no positive integer.

    Example:
      >>> from flax import nnx
      >>> from jaxattn.nn import RelativeBias
      >>> RelativeBias(4, rngs=nnx.Rngs(0))().table.shape
      (4, 32)

    Source: Raffel et al. 2020 (T5), section 2.1.
    """

    def __init__(
        self,
        num_heads: int,
        buckets: T5Buckets = T5Buckets(),  # noqa: B008
        *,
        param_dtype: Any = None,
        rngs: nnx.Rngs,
    ):
        _checks.positive(num_heads=num_heads)
        dtype = "float32" if param_dtype is None else param_dtype
        self.buckets = buckets
        draw = nnx.initializers.normal(1.0)
        self.table = nnx.Param(draw(rngs.params(), (num_heads, buckets.count), dtype))

    def __call__(self) -> RelativePosition:
        """The bias."""
        return RelativePosition(self.table[...], self.buckets)
