"""The sizes of tiles, and whether examples and heads are looped over.

Letters: see `jaxattn._typing`.
"""

import math

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
    wide = columns
    if looped and heads == key_heads and not selects(inputs):
        wide = block_size(keys, 2 * COLUMNS)
    return Plan(rows, columns, wide, looped, padding)


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
    """The largest block up to `most` that divides `size` and is not tiny; `most` if none does."""
    if not isinstance(size, int) or size > most:
        whole = [b for b in range(most, most // 2, -1) if isinstance(size, int) and size % b == 0]
        return whole[0] if whole else most
    return max(size, 1)


def loopable(inputs: Inputs) -> bool:
    """Whether one example and key head can be seen without the others."""
    bias = inputs.bias_function
    if jax.default_backend() != "cpu" or is_sharded(inputs):
        return False
    if inputs.score_mod is not None or not (bias is None or isinstance(bias, Bias)):
        return False
    if inputs.mask is None:
        return True
    mask, batch = inputs.mask, inputs.batch
    one = (jax.ShapeDtypeStruct((1, 1, 1), jnp.int32),) * 2
    seen = jax.eval_shape(lambda i, j: mask.example(jnp.int32(0), batch)(i, j), *one)
    return math.prod(seen.shape) == 1
