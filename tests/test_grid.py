"""Axial and neighbourhood attention on images, against dense attention with the same mask."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import Causal
from tests import oracle
from tests.calls import jit
from tests.differentiation import check_derivatives, orders
from tests.tolerances import assert_close

HEIGHT, WIDTH = 4, 5


def images(batch=(2,), count=2, key_heads=1, size=3, value_size=2):
    rng = np.random.default_rng(0)
    grid = (*batch, HEIGHT, WIDTH)
    shapes = (*grid, count, size), (*grid, key_heads, size), (*grid, key_heads, value_size)
    return [jnp.asarray(rng.standard_normal(shape)) for shape in shapes]


def dense(query, key, value, allowed):
    """The oracle on flattened images, with a rule for two places (y, x)."""
    flat = (np.asarray(x).reshape(*x.shape[:-4], -1, *x.shape[-2:]) for x in (query, key, value))
    mask = lambda p, q: allowed(divmod(p, WIDTH), divmod(q, WIDTH))
    out = oracle.attention(*flat, mask=mask).out
    return out.reshape(*query.shape[:-1], -1)


def near(place, other, size, window):
    start = min(max(place - window // 2, 0), size - window)
    return start <= other < start + window


RULES = {
    "rows": (jaxattn.row_attention, {}, lambda a, b: a[0] == b[0]),
    "columns": (jaxattn.column_attention, {}, lambda a, b: a[1] == b[1]),
    "rows, causal": (
        jaxattn.row_attention,
        dict(mask=Causal()),
        lambda a, b: a[0] == b[0] and b[1] <= a[1],
    ),
    "columns, causal": (
        jaxattn.column_attention,
        dict(mask=Causal()),
        lambda a, b: a[1] == b[1] and b[0] <= a[0],
    ),
    "neighbourhood": (
        jaxattn.neighbourhood_attention,
        dict(window=(3, 5)),
        lambda a, b: near(a[0], b[0], HEIGHT, 3) and near(a[1], b[1], WIDTH, 5),
    ),
    "square": (
        jaxattn.neighbourhood_attention,
        dict(window=3),
        lambda a, b: near(a[0], b[0], HEIGHT, 3) and near(a[1], b[1], WIDTH, 3),
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_is_dense_attention_with_the_mask(name, batch):
    function, options, allowed = RULES[name]
    arrays = images(batch)
    if batch:  # tiles once, the definition once
        options = options | dict(implementation="blockwise")
    out = jit(lambda *x: function(*x, **options))(*arrays)
    assert_close(out, dense(*arrays, allowed))


@pytest.mark.parametrize("name", ["rows", "columns", "rows, causal", "columns, causal", "square"])
@orders
def test_derivatives(name, reverse):
    """The causal ones by tiles, whose derivatives are rules; the others by the definition."""
    function, options, _ = RULES[name]
    if "causal" in name:
        options = options | dict(implementation="blockwise")
    check_derivatives(lambda *x: function(*x, **options), *images((), count=1), reverse=reverse)


def test_costs_of_a_large_image():
    assert jaxattn.grid_cost(640, 640, 32) == (400, 160_000)
    assert jaxattn.grid_cost(640, 640, 8) == (6_400, 40_960_000)
    assert jaxattn.grid_cost(64, 32, 32) == (2, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(query=jnp.ones((5, 2, 3))), r"query must be \[\*B, height, width, N, H\] with at"),
        (dict(key=jnp.ones((4, 6, 1, 3))), "width must agree: query has width = 5, key has width"),
        (dict(value=jnp.ones((3, 5, 1, 2))), "height must agree"),
        (dict(window=4), "window must be odd"),
        (dict(window=7), "at most height = 4"),
    ],
)
def test_bad_input(change, message):
    given = dict(zip(("query", "key", "value"), images(()), strict=True)) | dict(window=3) | change
    with pytest.raises(ValueError, match=message):
        jaxattn.neighbourhood_attention(**given)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((16, 64, 32), "height must be a multiple of the stride 32 and at least one, got 16"),
        ((64, 65, 32), "width must be a multiple of the stride"),
        ((64, 64, 0), "stride must be at least 1"),
    ],
)
def test_bad_images(size, message):
    with pytest.raises(ValueError, match=message):
        jaxattn.grid_cost(*size)
    with pytest.raises(TypeError, match="height must be an integer"):
        jaxattn.grid_cost(64.0, 64, 32)
