"""All first and second derivatives of a function, held against differences and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.calls import STENCIL, derivative, jit
from tests.tolerances import error

EXACT = 1e-12
STEPS = tuple(k * 1e-2 for k in (0, -3, -2, -1, 1, 2, 3))

# Reverse over reverse is the most expensive program of all; it has a test of its own.
orders = pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])


def check_derivatives(function, *arrays, reverse=False, stencil=STENCIL):
    """jit, vmap, jvp, vjp and a Hessian product of `function`, in float64.

    Along one random direction: the tangent and the gradient's derivative are those of a stencil,
    whose points are one `vmap`; the vjp is the adjoint of the jvp. With `reverse`, reverse over
    reverse is forward over reverse instead.
    """
    rng = np.random.default_rng(0)
    arrays = tuple(jnp.asarray(x, jnp.float64) for x in arrays)
    direction = tuple(jnp.asarray(rng.standard_normal(x.shape) / 4) for x in arrays)
    cotangent = jnp.asarray(rng.standard_normal(jax.eval_shape(function, *arrays).shape))
    everything = tuple(range(len(arrays)))

    def loss(*arrays):
        return jnp.sum(function(*arrays) * cotangent)

    gradient = jax.grad(loss, everything)
    if reverse:
        both = jit(
            lambda *x: (
                jax.jvp(gradient, x, direction)[1],
                jax.grad(lambda *x: dot(gradient(*x), direction), everything)(*x),
            )
        )
        for index, (a, b) in enumerate(zip(*both(*arrays), strict=True)):
            assert_near(f"reverse over reverse, argument {index}", b, a, EXACT)
        return

    @jit
    @jax.vmap
    def along(step):
        points = tuple(x + step * d for x, d in zip(arrays, direction, strict=True))
        out, tangent = jax.jvp(function, points, direction)
        gradients, forward = jax.jvp(gradient, points, direction)
        return out, tangent, dot(gradients, direction), dot(forward, direction)

    results = along(jnp.array(STEPS))
    out, tangent, slope, curvature = (dict(zip(STEPS, x, strict=True)) for x in results)
    assert_near("vmap", out[0], jit(function)(*arrays), EXACT)
    assert_near("jvp", tangent[0], derivative(lambda t: out[t]), stencil)
    assert_near("vjp", slope[0], jnp.sum(cotangent * tangent[0]), EXACT)
    assert_near("hvp", curvature[0], derivative(lambda t: slope[t]), stencil)


def dot(left, right):
    return sum(jnp.sum(a * b) for a, b in zip(left, right, strict=True))


def assert_near(name, got, want, tolerance):
    worst = error(got, want)
    assert worst <= tolerance, f"{name}: error {worst:.2e} > {tolerance:.0e}"
