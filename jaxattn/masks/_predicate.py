"""Any function of positions as a mask."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn._typing import Array
from jaxattn.masks._base import Mask


@jax.tree_util.register_pytree_node_class
class Predicate(Mask):
    """A function of positions: allowed where `function(query_positions, key_positions)`.

    Args:
      function: any JAX function of two integer arrays that broadcast, to booleans. A plain
        function is static; a pytree callable (such as `jax.tree_util.Partial`) keeps its arrays
        as leaves.

    Raises (when used):
      TypeError: the function returns no booleans.

    Example:
      >>> from jaxattn.masks import Predicate
      >>> every_other = Predicate(lambda query, key: (query - key) % 2 == 0)
      >>> print(every_other.dense(2, 4).astype(int))
      [[1 0 1 0]
       [0 1 0 1]]
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def __call__(self, query_positions: Any, key_positions: Any) -> Array:
        """The function's answer, checked to be boolean."""
        allowed = jnp.asarray(self.function(query_positions, key_positions))
        if allowed.dtype != jnp.bool_:
            raise TypeError(
                f"Predicate's function must return booleans, got {allowed.dtype}; compare "
                "something, for example `lambda query, key: key <= query`"
            )
        rank = max(query_positions.ndim, key_positions.ndim)
        return allowed if allowed.ndim >= 2 else jnp.broadcast_to(allowed, (1,) * rank)

    def __repr__(self) -> str:
        return f"Predicate({getattr(self.function, '__name__', repr(self.function))})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """A pytree callable is a child; a plain function is static."""
        if jax.tree_util.all_leaves([self.function]):
            return (), self.function
        return (self.function,), None

    @classmethod
    def tree_unflatten(cls, static: Any, children: tuple[Any, ...]) -> "Predicate":
        """Inverse of `tree_flatten`."""
        return cls(children[0] if children else static)
