"""All first and second derivatives of a function, held against differences and each other."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.calls import STENCIL, derivative, jit
from tests.tolerances import error

EXACT = 1e-12


def check_derivatives(function, *arrays, seed=0, stencil=STENCIL):
    """jit, vmap, jvp, vjp and both Hessian products of `function`, in float64, compiled once.

    Along one random direction: the tangent and the gradient's derivative are those of a stencil;
    the vjp is the adjoint of the jvp; reverse over reverse is forward over reverse; vmap is a loop.
    """
    rng = np.random.default_rng(seed)
    arrays = tuple(jnp.asarray(x, jnp.float64) for x in arrays)
    direction = tuple(jnp.asarray(rng.standard_normal(x.shape) / 4) for x in arrays)
    shape = jax.eval_shape(function, *arrays).shape
    cotangent = jnp.asarray(rng.standard_normal(shape))

    @jit
    def everything(arrays):
        def loss(*arrays):
            return jnp.sum(function(*arrays) * cotangent)

        gradient = jax.grad(loss, argnums=tuple(range(len(arrays))))

        def along(*arrays):
            return dot(gradient(*arrays), direction)

        out, tangent = jax.jvp(function, arrays, direction)
        gradients, forward = jax.jvp(gradient, arrays, direction)
        reverse = jax.grad(along, argnums=tuple(range(len(arrays))))(*arrays)
        two = tuple(jnp.stack([x, x + 0.01 * d]) for x, d in zip(arrays, direction, strict=True))
        return out, tangent, gradients, forward, reverse, jax.vmap(function)(*two)

    def at(step):
        return everything(tuple(x + step * d for x, d in zip(arrays, direction, strict=True)))

    out, tangent, gradients, forward, reverse, mapped = at(0)
    assert_near("jvp", tangent, derivative(lambda t: at(t)[0]), stencil)
    assert_near("vjp", dot(gradients, direction), jnp.sum(cotangent * tangent), EXACT)
    slope = derivative(lambda t: dot(at(t)[2], direction))
    assert_near("hvp", dot(forward, direction), slope, stencil)
    for index, (a, b) in enumerate(zip(forward, reverse, strict=True)):
        assert_near(f"reverse over reverse, argument {index}", b, a, EXACT)
    assert_near("vmap", mapped, jnp.stack([out, at(0.01)[0]]), EXACT)
    return gradients


def dot(left, right):
    return sum(jnp.sum(a * b) for a, b in zip(left, right, strict=True))


def assert_near(name, got, want, tolerance):
    worst = error(got, want)
    assert worst <= tolerance, f"{name}: error {worst:.2e} > {tolerance:.0e}"
