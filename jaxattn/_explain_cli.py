"""`python -m jaxattn explain`: what `attention` would do with shapes given as options.

Exit status: 0, 1 no implementation can do it, 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn import masks
from jaxattn.explanation import Explanation, explain


def main(argv: Sequence[str] | None = None) -> int:
    """Explain what `argv` describes, and return the exit status."""
    options = parser().parse_args(argv)
    try:
        found = explained(options)
    except (TypeError, ValueError) as error:
        print(f"jaxattn explain: {error}", file=sys.stderr)
        return 2
    print(found)
    return 0 if found.implementation is not None else 1


def parser() -> argparse.ArgumentParser:
    """The options of the command; letters as in `jaxattn._typing`."""
    found = argparse.ArgumentParser("jaxattn explain", description=(__doc__ or "").split("\n\n")[0])
    found.add_argument("--length", type=int, required=True, metavar="T", help="queries")
    found.add_argument("--keys", type=int, metavar="S", help="default: T")
    found.add_argument("--batch", type=int, default=1, metavar="B")
    found.add_argument("--heads", type=int, default=8, metavar="N")
    found.add_argument("--key-heads", type=int, metavar="K", help="default: N")
    found.add_argument("--size", type=int, default=64, metavar="H")
    found.add_argument("--dtype", default="float32")
    found.add_argument("--mask", help='Python, for example "Causal() & SlidingWindow(255, 0)"')
    found.add_argument("--implementation", help="a name, as in attention")
    return found


def explained(options: argparse.Namespace) -> Explanation:
    """The explanation, from shapes alone: no array is made."""
    check_sizes(options)
    mask = None if options.mask is None else evaluated(options.mask)
    keys = options.length if options.keys is None else options.keys
    key_heads = options.heads if options.key_heads is None else options.key_heads
    query = (options.batch, options.length, options.heads, options.size)
    key = (options.batch, keys, key_heads, options.size)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.dtype(options.dtype)) for shape in (query, key, key)]
    found: list[Explanation] = []

    def program(*operands: Any) -> None:
        found.append(explain(*operands, mask=mask, implementation=options.implementation))

    jax.eval_shape(program, *shapes)
    return found[0]


def check_sizes(options: argparse.Namespace) -> None:
    """A ValueError for a size that no array has."""
    for name in ("length", "keys", "batch", "heads", "key_heads", "size"):
        size = getattr(options, name)
        if size is not None and size < 0:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 0, got {size}")


def evaluated(text: str) -> Any:
    """The mask that Python text describes; a ValueError says what is wrong with the text."""
    try:
        return eval(text, {**vars(masks), "jnp": jnp})
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(
            f"--mask {text!r} cannot be evaluated: {kind}: {error}; masks are "
            + ", ".join(name for name in masks.__all__ if name[0].isupper())
        ) from None
