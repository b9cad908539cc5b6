"""Learned biases of the relative position, and T5's buckets of distances."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn import _validate
from jaxattn._precision import accumulator
from jaxattn._typing import Array, Float
from jaxattn.biases._base import Bias
from jaxattn.masks._base import changed, mask_class


@dataclasses.dataclass(frozen=True)
class T5Buckets:
    """T5's buckets of a distance: near ones have their own, far ones share, logarithmically.

    Of n buckets for one direction, with e = ⌊n / 2⌋, distance d falls into

        d for d < e,   else   min(n - 1, e + ⌊(n - e) · log(d / e) / log(max_distance / e)⌋)

    Bidirectional, n is count / 2, and keys after the query take the second half; otherwise n is
    count, and such keys count as distance 0. The borders are found in integers, so that no rounding
    moves one.

    Args:
      count: R, how many buckets.
      max_distance: from here on, all share the last bucket.
      bidirectional: True in encoders, False in decoders.

    Raises:
      TypeError: a number is no integer.
      ValueError: count is odd though bidirectional, or too small; max_distance is at most e.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.biases import T5Buckets
      >>> print(T5Buckets()(jnp.array([-200, -20, -7, 0, 7, 20, 200])))
      [15 10  7  0 23 26 31]

    Source: Raffel et al. 2020 (T5), section 2.1 and their published code.
    """

    count: int = 32
    max_distance: int = 128
    bidirectional: bool = True

    def __post_init__(self) -> None:
        for name in ("count", "max_distance"):
            _validate.integer(name, getattr(self, name))
        if self.bidirectional and self.count % 2 or self.one_way < 2:
            least = "even and at least 4" if self.bidirectional else "at least 2"
            raise ValueError(f"count must be {least}, got {self.count}")
        if self.max_distance <= self.one_way // 2:
            raise ValueError(
                f"max_distance must be above {self.one_way // 2}, below which every distance has a "
                f"bucket of its own, got {self.max_distance}"
            )

    @property
    def one_way(self) -> int:
        """Buckets for one direction."""
        return self.count // 2 if self.bidirectional else self.count

    def borders(self) -> list[int]:
        """The least distances of the shared buckets, from the second on."""
        exact = self.one_way // 2
        shared = self.one_way - exact
        return [self._border(k, exact, shared) for k in range(1, shared)]

    def _border(self, k: int, exact: int, shared: int) -> int:
        """The least d with `(d / exact)^shared ≥ (max_distance / exact)^k`, in integers."""
        bound = exact ** (shared - k) * self.max_distance**k
        low, high = exact, self.max_distance
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if middle**shared >= bound else (middle + 1, high)
        return low

    def __call__(self, distance: Array) -> Array:
        """The bucket of each `key position - query position`."""
        apart = jnp.abs(distance) if self.bidirectional else jnp.maximum(-distance, 0)
        bucket = jnp.minimum(apart, self.one_way // 2)
        for border in self.borders():
            bucket = bucket + (apart >= border).astype(bucket.dtype)
        return (
            jnp.where(distance > 0, bucket + self.one_way, bucket) if self.bidirectional else bucket
        )


@mask_class(leaves=("table",), static=("buckets",))
class RelativePosition(Bias):
    """A learned number for each head and bucket of distances.

        b_hij = table[h, buckets(key position j - query position i)]

    Args:
      table: floating `[N, R]`. (T5 stores its transpose, `[R, N]`.)
      buckets: a function of integer distances of any shape to integers from 0 to R - 1, static:
        `T5Buckets(...)`, or for instance `lambda distance: jnp.clip(distance, -7, 7) + 7`. An
        index outside the table gives NaN.

    Raises (when used):
      TypeError: the table is not floating, or buckets is no function.
      ValueError: the table is not `[N, R]`, or has fewer entries than there are buckets.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxattn.biases import RelativePosition
      >>> table = jnp.array([[1.0, 2.0, 3.0]])
      >>> bias = RelativePosition(table, lambda distance: jnp.clip(distance, -1, 1) + 1)
      >>> print(bias(jnp.arange(3)[:, None], jnp.arange(3)[None, :]))
      [[[2. 3. 3.]
        [1. 2. 3.]
        [1. 1. 2.]]]

    Source: Shaw et al. 2018, section 3.2, added to scores as in Raffel et al. 2020 (T5).
    """

    table: Float[Array, "N R"]
    buckets: Callable[[Array], Array] = T5Buckets()

    def check(
        self, batch: tuple[int, ...], heads: int, queries: int | None, keys: int | None
    ) -> None:
        """The table is floating `[N, R]`, with an entry for each bucket."""
        table = _validate.floating("RelativePosition.table", self.table, "[N, R]")
        if table.ndim != 2 or table.shape[0] != heads:
            raise ValueError(
                f"RelativePosition.table must be [N, R] with N = {heads}, got shape "
                f"{list(table.shape)}; T5 stores [R, N], its transpose"
            )
        if not callable(self.buckets):
            raise TypeError(
                "RelativePosition.buckets must be a function of distances, got "
                f"{type(self.buckets).__name__}; T5's are jaxattn.biases.T5Buckets(...)"
            )
        needed = getattr(self.buckets, "count", 0)
        if isinstance(needed, int) and table.shape[1] < needed:
            raise ValueError(
                f"RelativePosition.table must be [N, R] with R = {needed} for {self.buckets!r}, "
                f"got shape {list(table.shape)}"
            )

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The table's entry for each pair's bucket."""
        table = jnp.asarray(self.table)
        table = table.astype(accumulator(table.dtype))
        index = self.buckets(key_positions - query_positions)
        index = index[..., 0, :, :] if index.ndim > 2 else index
        # A negative index would count from the end. The gather's transpose adds up in `table`'s
        # wide dtype; on a CPU both are several times faster than products with one-hot rows.
        index = jnp.where(index < 0, table.shape[1], index)
        entries = table.T.at[index].get(mode="fill", fill_value=jnp.nan)
        return jnp.moveaxis(entries, -1, -3)

    def heads(self, first: Any, count: int) -> "RelativePosition":
        """The table's rows of these heads."""
        table = jax.lax.dynamic_slice_in_dim(self.table, first, count)
        return changed(self, table=table)
