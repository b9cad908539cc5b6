"""Channel attention, from the paper's equations and against trained networks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.channel import squeeze
from tests.calls import jit
from tests.differentiation import check_derivatives, orders
from tests.tolerances import assert_close, error


def operands(batch=(2,), places=6, channels=8, reduced=2, dtype="float64"):
    rng = np.random.default_rng(0)
    shapes = (*batch, places, channels), (channels, reduced), (reduced, channels)
    shapes = (*shapes, (reduced,), (channels,))
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def by_hand(x, w_reduce, w_expand, b_reduce=0.0, b_expand=0.0, gate=None, here=None):
    """Each image and each channel, in float64."""
    x, w_reduce, w_expand = (np.asarray(a, np.float64) for a in (x, w_reduce, w_expand))
    gate = (lambda s: 1 / (1 + np.exp(-s))) if gate is None else gate
    out = np.zeros_like(x)
    for b in np.ndindex(*x.shape[:-2]):
        used = x[b] if here is None else x[b][here[b]]
        mean = used.sum(axis=0) / max(len(used), 1)
        hidden = np.maximum(mean @ w_reduce + np.asarray(b_reduce, np.float64), 0)
        gates = gate(hidden @ w_expand + np.asarray(b_expand, np.float64))
        for t in range(x.shape[-2]):
            if here is None or here[b][t]:
                out[(*b, t)] = x[(*b, t)] * gates
    return out


@pytest.mark.parametrize("batch", [(), (2, 1)], ids=str)
def test_is_the_equation(batch):
    x, w_reduce, w_expand, *biases = operands(batch)
    out = jaxattn.channel_attention(x, w_reduce, w_expand)
    assert_close(out, by_hand(x, w_reduce, w_expand))
    out = jaxattn.channel_attention(x, w_reduce, w_expand, *biases)
    assert_close(out, by_hand(x, w_reduce, w_expand, *biases))


@pytest.mark.parametrize("slope", [1 / 6, 0.2])
def test_hard_sigmoid(slope):
    values = operands()
    gate = functools.partial(jaxattn.hard_sigmoid, slope=slope)
    want = by_hand(*values, gate=lambda s: np.clip(slope * s + 0.5, 0, 1))
    assert_close(jaxattn.channel_attention(*values, gate=gate), want)


def test_places_that_take_no_part_are_inert():
    """NaN in them changes nothing, in the gradient neither; an image of none is 0."""
    x, *weights = operands((3,))
    here = np.array([[True] * 6, [True, False, True, False, True, False], [False] * 6])
    poisoned = jnp.where(jnp.asarray(here)[..., None], x, jnp.nan)

    @jit
    def run(x):
        loss = lambda x: jnp.sum(jaxattn.channel_attention(x, *weights, mask=here) ** 2)
        return jaxattn.channel_attention(x, *weights, mask=here), jax.grad(loss)(x)

    out, gradient = run(poisoned)
    assert_close(out, by_hand(x, *weights, here=here))
    np.testing.assert_array_equal(gradient, run(x)[1])
    assert jnp.isfinite(gradient).all() and (squeeze(x, here)[2] == 0).all()


@orders
def test_derivatives(reverse):
    check_derivatives(
        jaxattn.channel_attention, *operands((), places=4, channels=4), reverse=reverse
    )


def test_dtype_is_kept():
    values = operands(dtype="bfloat16")
    out = jaxattn.channel_attention(*values)
    assert out.dtype == jnp.bfloat16 and error(out, by_hand(*values)) < 0.05


@pytest.mark.parametrize(
    ("change", "error_type", "message"),
    [
        (dict(w_reduce=jnp.ones((7, 2))), ValueError, "D must agree: x has D = 8"),
        (dict(b_expand=jnp.ones(7)), ValueError, r"bias must be \[F\] = \[8\]"),
        (dict(mask=jnp.ones((2, 6))), TypeError, "mask must be boolean"),
        (dict(mask=jnp.ones((2, 5), bool)), ValueError, r"mask must be \[\*B, T\] = \[2, 6\]"),
        (dict(x=jnp.ones((2, 6, 8), int)), TypeError, "x must be a floating array"),
        (dict(x=jnp.ones(8)), ValueError, r"x must be \[\*B, T, D\] with at least 2 axes"),
    ],
)
def test_bad_input(change, error_type, message):
    names = ("x", "w_reduce", "w_expand", "b_reduce", "b_expand")
    values = dict(zip(names, operands(), strict=True)) | change
    with pytest.raises(error_type, match=message):
        jaxattn.channel_attention(**values)
