"""A bias that is an array."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float
from jaxattn.biases._base import Bias
from jaxattn.masks._base import changed, mask_class, with_rank
from jaxattn.masks._lookup import check_pairs, one, pair_entries


@mask_class(leaves=("array",))
class Dense(Bias):
    """A floating array, looked up by position; pairs beyond its borders get -inf, and are out.

    Without explicit positions, `bias=array` says the same, and is cheaper.

    Args:
      array: floating `[T, S]`, or `[*B, N, T, S]` with broadcasting ones.

    Raises (when used):
      TypeError: the array is not floating.
      ValueError: its rank is neither 2 nor len(*B) + 3, or it ends before the positions do.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.biases import Dense
      >>> bias = Dense(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
      >>> print(bias(jnp.array([[1], [0]]), jnp.array([[0, 1, 2]])))
      [[[  3.   4. -inf]
        [  1.   2. -inf]]]
    """

    array: Float[Array, "*B N T S"]

    def check(
        self, batch: tuple[int, ...], heads: int, queries: int | None, keys: int | None
    ) -> None:
        """The array is floating `[T, S]` or `[*B, N, T, S]`."""
        array = _validate.floating("Dense.array", self.array, "[T, S] or [*B, N, T, S]")
        _validate.minimum_rank("Dense.array", array, 2, "[T, S] or [*B, N, T, S]")
        check_pairs("Dense.array", array, batch, queries, keys)
        if array.ndim > 2 and array.shape[-3] not in (1, heads):
            raise ValueError(
                f"Dense.array must be [*B, N, T, S] with N = {heads} or 1, got shape "
                f"{list(array.shape)}"
            )

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The array's entry at both positions."""
        array = jnp.asarray(self.array)
        entries = pair_entries(array, query_positions, key_positions, outside=-jnp.inf)
        return with_rank(entries.astype(accumulator(array.dtype)), max(entries.ndim, 3))

    def example(self, index: Any, batch: tuple[int, ...]) -> "Dense":
        """The array of one example of `*B`."""
        return changed(self, array=one(self.array, index, batch, 3))

    def heads(self, first: Any, count: int) -> "Dense":
        """The array of these heads."""
        if self.array.ndim == 2 or self.array.shape[-3] == 1:
            return self
        array = jax.lax.dynamic_slice_in_dim(self.array, first, count, axis=-3)
        return changed(self, array=array)
