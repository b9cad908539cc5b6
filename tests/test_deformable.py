"""Deformable attention against a loop over points: inside, at the borders, and beyond."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from tests.calls import jit
from tests.differentiation import check_derivatives, orders
from tests.tolerances import FORWARD, assert_close, error

SHAPES = ((3, 4), (2, 2))


def operands(batch=(2,), queries=3, heads=2, points=2, size=3, dtype="float64", spread=0.7):
    """Locations reach beyond the borders; none lies at the middle of a cell."""
    rng = np.random.default_rng(0)
    looks = (*batch, queries, heads, len(SHAPES), points)
    value = rng.standard_normal((*batch, 16, heads, size))
    locations = 0.5 + spread * rng.uniform(-1, 1, (*looks, 2))
    return [jnp.asarray(x, dtype) for x in (value, locations, rng.standard_normal(looks))]


def pixel(cells, row, column):
    """A cell, or 0 beyond the borders."""
    height, width = cells.shape[:2]
    inside = 0 <= row < height and 0 <= column < width
    return cells[row, column] if inside else np.zeros(cells.shape[2:])


def bilinear(cells, x, y):
    """PyTorch's `grid_sample` with zeros and align_corners=False, for x and y in [0, 1]."""
    height, width = cells.shape[:2]
    x, y = x * width - 0.5, y * height - 0.5
    left, top = int(np.floor(x)), int(np.floor(y))
    out = 0.0
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, right in ((left, 1 - (x - left)), (left + 1, x - left)):
            out = out + down * right * pixel(cells, row, column)
    return out


def by_hand(value, locations, weights, shapes=SHAPES):
    value, locations, weights = (np.asarray(x, np.float64) for x in (value, locations, weights))
    out = np.zeros((*locations.shape[:-3], value.shape[-1]))
    starts = np.cumsum([0, *(h * w for h, w in shapes)])
    for *b, t, n, level, p in np.ndindex(*weights.shape):
        height, width = shapes[level]
        cells = value[tuple(b)][starts[level] : starts[level + 1], n].reshape(height, width, -1)
        x, y = locations[(*b, t, n, level, p)]
        out[(*b, t, n)] += weights[(*b, t, n, level, p)] * bilinear(cells, x, y)
    return out


deformable = jit(jaxattn.deformable_attention, static_argnums=1)


@pytest.mark.parametrize("batch", [(), (2,), (2, 1)], ids=str)
def test_is_the_loop(batch):
    value, locations, weights = operands(batch)
    out = deformable(value, SHAPES, locations, weights)
    assert_close(out, by_hand(value, locations, weights))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtype_is_kept(dtype):
    value, locations, weights = operands(dtype=dtype)
    out = deformable(value, SHAPES, locations, weights)
    assert out.dtype == dtype
    assert error(out, by_hand(value, locations, weights)) <= 2 * FORWARD[dtype]


BORDERS = [-1e30, -0.5, -0.375, -0.125, -0.1, 0.0, 0.125, 0.375, 0.5, 0.875, 1.0, 1.1, 1.125, 1.2]


def test_exact_at_borders_and_beyond():
    """Every pair of coordinates of a map of 4 × 4: middles, corners, half a cell out, far away."""
    grid = np.array([(x, y) for x in BORDERS for y in BORDERS])
    value = np.random.default_rng(0).standard_normal((16, 1, 2))
    locations = grid[:, None, None, None]
    weights, shapes = np.ones(locations.shape[:-1]), ((4, 4),)
    out = deformable(jnp.asarray(value), shapes, jnp.asarray(locations), jnp.asarray(weights))
    far = (np.abs(grid) > 1e3).any(axis=-1)
    near = np.where(far[:, None, None, None, None], 9.0, locations)
    want = by_hand(value, near, weights, shapes)
    np.testing.assert_array_equal(want[far], 0)
    assert_close(out, want)
    np.testing.assert_array_equal(out[far], 0)
    middle = deformable(
        jnp.asarray(value), ((4, 4),), jnp.full((1, 1, 1, 1, 2), 0.375), jnp.ones((1, 1, 1, 1))
    )
    np.testing.assert_array_equal(middle[0], value[5])  # the middle of a cell is the cell


@orders
def test_derivatives(reverse):
    value, locations, weights = operands(())
    check_derivatives(
        lambda v, x, w: jaxattn.deformable_attention(v, SHAPES, x, w),
        value,
        locations,
        weights,
        reverse=reverse,
    )


def test_gradient_at_the_middle_and_the_border_is_towards_larger_coordinates():
    value = jnp.array([1.0, 4.0, 9.0, 2.0]).reshape(4, 1, 1)

    def sample(x):
        location = jnp.stack([x, jnp.asarray(0.5)]).reshape(1, 1, 1, 1, 2)
        out = jaxattn.deformable_attention(value, ((1, 4),), location, jnp.ones((1, 1, 1, 1)))
        return out.sum()

    # In cells: far out, one cell out, the four middles, one cell out, far out.
    places = (jnp.array([-9.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 9.0]) + 0.5) / 4
    slopes = jit(jax.vmap(jax.grad(sample)))(places)
    np.testing.assert_array_equal(slopes / 4, [0, 1, 3, 5, -7, -2, 0, 0])


def test_nan_and_infinity_of_a_location():
    """NaN makes NaN of its query and head, and no gradient; infinity is far away, and 0."""
    value, locations, weights = operands()
    poisoned = locations.at[0, 1, 0, 1, 0, 1].set(jnp.nan).at[1, 2, 1, 0].set(jnp.inf)

    @jit
    def run(value, locations, weights):
        def loss(*x):
            out = jaxattn.deformable_attention(x[0], SHAPES, *x[1:])
            return jnp.sum(jnp.where(jnp.isnan(out), 0, out) ** 2)

        out = jaxattn.deformable_attention(value, SHAPES, locations, weights)
        return out, jax.grad(loss, (0, 1, 2))(value, locations, weights)

    out, gradients = run(value, poisoned, weights)
    unknown = np.isnan(out)
    assert unknown[0, 1, 0].all() and unknown.sum() == 3
    want = by_hand(value, jnp.nan_to_num(poisoned, nan=9.0, posinf=9.0), weights)
    assert_close(jnp.where(unknown, 0, out), np.where(unknown, 0, want))
    assert all(jnp.isfinite(g).all() for g in gradients)
    assert (gradients[1][1, 2, 1, 0] == 0).all()


def test_masked_values_are_zero_whatever_they_hold():
    value, locations, weights = operands()
    mask = jnp.ones((2, 16), bool).at[0, 5:9].set(False)
    poisoned = jnp.where(mask[..., None, None], value, jnp.nan)
    run = lambda v: jaxattn.deformable_attention(v, SHAPES, locations, weights, mask=mask)
    out, gradient = jit(lambda v: (run(v), jax.grad(lambda v: jnp.sum(run(v) ** 2))(v)))(poisoned)
    want = by_hand(np.where(mask[..., None, None], value, 0), locations, weights)
    assert_close(out, want)
    assert jnp.isfinite(gradient).all() and (gradient[0, 5:9] == 0).all()


def test_sampling_locations():
    offsets = jnp.arange(2.0 * 2 * 2).reshape(1, 1, 2, 2, 2)
    got = jaxattn.sampling_locations(jnp.array([[0.5, 0.25]]), offsets, SHAPES)
    assert_close(got[0, 0, 0, 1], np.array([0.5 + 2 / 4, 0.25 + 3 / 3]))
    assert_close(got[0, 0, 1, 0], np.array([0.5 + 4 / 2, 0.25 + 5 / 2]))
    each = jnp.array([[[0.5, 0.25], [0.0, 1.0]]])
    got = jaxattn.sampling_locations(each, offsets, SHAPES)
    assert_close(got[0, 0, 1, 0], np.array([4 / 2, 1 + 5 / 2]))


@pytest.mark.parametrize(
    ("change", "error_type", "message"),
    [
        (dict(shapes=((3, 4), (2, 3))), ValueError, "S = 18 for shapes .* got S = 16"),
        (dict(shapes=((4, 4),)), ValueError, r"locations must be \[\*B, T, N, L, P, 2\] .* L = 1"),
        (dict(shapes=()), ValueError, r"shapes must be \(height, width\) of each level"),
        (dict(shapes=((16, 0), (4, 4))), ValueError, "positive integers"),
        (dict(shapes=jnp.ones((2, 2))), ValueError, "known before the program runs"),
        (dict(weights=jnp.ones((2, 3, 2, 2, 3))), ValueError, "one for each location"),
        (dict(locations=jnp.ones((2, 3, 2, 2, 2, 3))), ValueError, "locations must be"),
        (dict(value=jnp.ones((2, 16, 2, 3), int)), TypeError, "value must be a floating array"),
        (dict(value=jnp.ones((2, 16, 2, 3), "float32")), TypeError, "must share one dtype"),
        (dict(mask=jnp.ones((2, 15), bool)), ValueError, r"mask must be \[\*B, T\] = \[2, 16\]"),
    ],
)
def test_bad_input(change, error_type, message):
    value, locations, weights = operands()
    given = dict(value=value, shapes=SHAPES, locations=locations, weights=weights) | change
    with pytest.raises(error_type, match=message):
        jaxattn.deformable_attention(**given)


def test_bad_references():
    offsets = jnp.ones((3, 2, 2, 1, 2))
    with pytest.raises(ValueError, match=r"reference must be \[\*B, T, 2\] = \[3, 2\]"):
        jaxattn.sampling_locations(jnp.ones((4, 2)), offsets, SHAPES)
    with pytest.raises(ValueError, match="with L = 1 levels"):
        jaxattn.sampling_locations(jnp.ones((3, 2)), offsets, ((4, 4),))
