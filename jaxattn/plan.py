"""The sizes of tiles, and whether examples and heads are looped over.

Letters: see `jaxattn._typing`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxattn._door import Inputs
from jaxattn._mesh import is_sharded
from jaxattn.biases import Bias
from jaxattn.dense import may_have_padding
from jaxattn.tiles import Plan, block_count, ever_possible, position_blocks

# Queries and keys in a tile: among the fastest of a few sizes tried on two CPUs, in float32.
DEFAULT_ROWS, DEFAULT_COLUMNS = 1024, 512
ROWS, COLUMNS = DEFAULT_ROWS, DEFAULT_COLUMNS
GROUP_ROWS = 2048  # most rows of one product: queries times heads of a group
TILE_PAIRS = 256 * 256  # a tile's fixed cost in pairs, which ranks sizes as their times do


def default_plan(inputs: Inputs) -> Plan:
    """Block sizes: of a few, those with the least work."""
    queries, keys, heads, key_heads = inputs.sizes
    looped, padding = loopable(inputs), may_have_padding(inputs)
    most = max(1, GROUP_ROWS * key_heads // heads)
    sizes = [(ROWS, COLUMNS), (ROWS // 2, COLUMNS), (ROWS // 2, COLUMNS // 2)]
    blocks = [(block_size(queries, min(r, most)), block_size(keys, c)) for r, c in sizes if r * c]
    rows, columns = min(blocks, key=lambda block: work(inputs, *block)) if looped else blocks[0]
    wide = block_size(keys, 2 * COLUMNS)
    if not (looped and heads == key_heads and isinstance(keys, int) and keys % wide == 0):
        wide = columns
    return Plan(rows, columns, columns if selects(inputs) else wide, looped, padding)


def work(inputs: Inputs, rows: int, columns: int) -> int:
    """Pairs in the tiles that the static part of the mask leaves, and the fixed cost of each."""
    queries, keys, *_ = inputs.sizes
    counted = inputs.query_positions is None and inputs.key_positions is None
    if not (counted and isinstance(queries, int) and isinstance(keys, int)):
        return 0
    rank = len(inputs.batch)
    row_blocks = position_blocks(inputs.query_positions, queries, inputs.query_offset, rows, rank)
    column_blocks = position_blocks(inputs.key_positions, keys, 0, columns, rank)
    left = ever_possible(inputs.mask, row_blocks, column_blocks)
    count = block_count(queries, rows) * block_count(keys, columns)
    return (count if left is None else int(left.sum())) * (rows * columns + TILE_PAIRS)


def selects(inputs: Inputs) -> bool:
    """Whether some pairs differ from others in more than their products."""
    return any(
        x is not None for x in (inputs.mask, inputs.pairs, inputs.bias, inputs.bias_function)
    )


def block_size(size: int, most: int) -> int:
    """The largest block up to `most` that divides `size` and is not tiny; else an even share."""
    if not isinstance(size, int):
        return most
    if size <= most:
        return max(size, 1)
    whole = [b for b in range(most, most // 2, -1) if size % b == 0]
    share = block_count(size, block_count(size, most))
    return whole[0] if whole else min(most, 16 * block_count(share, 16))


def loopable(inputs: Inputs) -> bool:
    """Whether one example and key head can be seen without the others."""
    mask, bias, batch = inputs.mask, inputs.bias_function, inputs.batch
    if jax.default_backend() != "cpu" or is_sharded(inputs) or inputs.score_mod is not None:
        return False
    if mask is not None and not one_example(lambda i: mask.example(i, batch), (1,)):
        return False
    if bias is None:
        return True
    if not isinstance(bias, Bias):
        return False
    *_, heads, key_heads = inputs.sizes
    group = heads // key_heads
    cut = key_heads == 1 or type(bias).heads is not Bias.heads
    return one_example(
        lambda i: bias.example(i, batch).heads(i, group), (1, group) if cut else (1,)
    )


def one_example(of: Any, heads: tuple[int, ...]) -> bool:
    """Whether `of(0)`, a function of positions, gives a pair one number, or one for each head."""
    pair = (jax.ShapeDtypeStruct((1, 1, 1), jnp.int32),) * 2
    *lead, rows, columns = jax.eval_shape(lambda i, j: of(jnp.int32(0))(i, j), *pair).shape
    return len(lead) <= 1 and math.prod(lead) in heads and rows == columns == 1
