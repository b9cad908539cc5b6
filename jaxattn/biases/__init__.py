"""Biases are functions of positions: what is added to a score before the softmax.

A bias is called as `bias(query_positions, key_positions)` with integer positions that broadcast,
`[..., t, 1]` and `[..., 1, s]`, and answers `[N, t, s]`, or `[*B, N, t, s]` with broadcasting ones
where the positions have more axes; in float32 or wider. Biases are frozen pytrees, and their arrays
are differentiable leaves. Never are more numbers made than those asked for, so that a tile of
scores makes its own tile of bias. Any other function of positions is a bias as well.

    distance   ALiBi (with alibi_slopes), RelativePosition (with T5Buckets)
    anything   Dense

Example:
  >>> import jax
  >>> from jaxattn import attention
  >>> from jaxattn.biases import ALiBi, alibi_slopes
  >>> from jaxattn.masks import Causal
  >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 5, 4, 8))
  >>> attention(query, key, value, mask=Causal(), bias=ALiBi(alibi_slopes(4))).shape
  (5, 4, 8)
"""

from jaxattn.biases._alibi import ALiBi as ALiBi
from jaxattn.biases._alibi import alibi_slopes as alibi_slopes
from jaxattn.biases._base import Bias as Bias
from jaxattn.biases._dense import Dense as Dense
from jaxattn.biases._relative import RelativePosition as RelativePosition
from jaxattn.biases._relative import T5Buckets as T5Buckets

__all__ = ["ALiBi", "Bias", "Dense", "RelativePosition", "T5Buckets", "alibi_slopes"]
