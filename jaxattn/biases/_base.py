"""What every bias is: a floating function of positions."""

from typing import Any

from jaxattn._typing import Array, Float
from jaxattn.masks._base import describe, forget


class Bias:
    """A floating function of query and key positions. See `jaxattn.biases`."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with another `__call__` says anew how it is cut into examples and heads."""
        super().__init_subclass__(**options)
        forget(cls, Bias, ("example", "heads"))

    def __call__(self, query_positions: Any, key_positions: Any) -> Float[Array, "*B N T S"]:
        """What is added to the scores of these queries for these keys."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def check(
        self, batch: tuple[int, ...], heads: int, queries: int | None, keys: int | None
    ) -> None:
        """Raise unless the arrays fit `*B` and N, and cover positions below `queries`, `keys`.

        None stands for positions that are not known before the program runs.
        """

    def example(self, index: Any, batch: tuple[int, ...]) -> "Bias":
        """The bias of one example, `index` of the flattened `*B`; its arrays lose their `*B`."""
        return self

    def heads(self, first: Any, count: int) -> "Bias":
        """The bias of the query heads first, ..., first + count - 1."""
        return self

    def __repr__(self) -> str:
        return describe(self)
