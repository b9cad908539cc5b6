"""The primitive compiled once for equal shapes, and held against the oracle with its gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxattn
from tests import oracle
from tests.tolerances import GRADIENT, assert_close, error

STATIC = ("implementation", "dropout_rate", "precision")

# A sixth-order stencil at step 1e-2 is off by about 1e-11 on functions of order 1.
STENCIL = 1e-9

# Tests run each program once, on a few numbers: compiling it is what takes the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

attention = jit(jaxattn.attention, static_argnames=STATIC)
partial_attention = jit(jaxattn.partial_attention, static_argnames=STATIC)
attention_with_weights = jit(jaxattn.attention_with_weights, static_argnames=STATIC[1:])


@functools.partial(jit, static_argnames=STATIC)
def out_and_gradients(operands, cotangent, **options):
    """`out`, and the gradients of `<cotangent, out>` in every array of `operands`."""
    out, pullback = jax.vjp(lambda operands: jaxattn.attention(**operands, **options), operands)
    return out, pullback(cotangent)[0]


def heads(*, batch=(2,), queries=5, keys=7, count=4, key_heads=2, size=3, value_size=6, seed=0):
    """Random query, key and value in float64, as a dict of operands."""
    rng = np.random.default_rng(seed)
    return {
        "query": rng.standard_normal((*batch, queries, count, size)),
        "key": rng.standard_normal((*batch, keys, key_heads, size)),
        "value": rng.standard_normal((*batch, keys, key_heads, value_size)),
    }


def like(operands, seed=1):
    """Random numbers of the same shapes, in float64."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(np.shape(x)) for name, x in operands.items()}


def check(implementation, operands, options=None, oracle_options=None, dtype="float64"):
    """Out and gradients of a call against the oracle's, in one dtype.

    `operands` are differentiated, `options` are not; `oracle_options` say the same to the oracle
    where it needs other words (a mask as a function). Gradients are held against differences of
    the oracle along a random direction, over all operands at once and over each.
    """
    options = options or {}
    told = options if oracle_options is None else oracle_options
    rounded = {name: np.asarray(jnp.asarray(x, dtype)) for name, x in operands.items()}
    want = oracle.attention(**rounded, **told).out
    cotangent = np.asarray(jnp.asarray(like({"out": want}, seed=2)["out"], dtype))
    arrays = {name: jnp.asarray(x) for name, x in rounded.items()}
    out, gradients = out_and_gradients(arrays, cotangent, **options, implementation=implementation)
    assert out.dtype == jnp.dtype(dtype)
    assert_close(out, want)
    for name, x in gradients.items():
        assert x.dtype == out.dtype and x.shape == np.shape(operands[name]), name
        assert np.isfinite(x.astype(jnp.float32)).all(), name
    for name, direction in like(rounded).items():
        assert_derivative(rounded, {name: direction}, told, cotangent, gradients, dtype)


def assert_derivative(operands, direction, told, cotangent, gradients, dtype):
    """`<gradient, direction>` is the oracle's derivative along the direction."""

    def along(step):
        moved = {name: operands[name] + step * x for name, x in direction.items()}
        out = oracle.attention(**{**operands, **moved}, **told).out
        return np.sum(out * cotangent.astype(np.float64))

    wide = {name: np.asarray(operands[name], np.float64) for name in direction}
    operands = {**operands, **wide}
    want = derivative(along)
    got = sum(np.sum(np.asarray(gradients[name], np.float64) * x) for name, x in direction.items())
    size = sum(
        np.sum(np.abs(np.asarray(gradients[name], np.float64) * x)) for name, x in direction.items()
    )
    tolerance = max(GRADIENT[dtype], STENCIL)
    assert error(got / max(1, size), want / max(1, size)) <= tolerance, (*direction, got, want)


def derivative(function, step=1e-2):
    """`function'(0)` by central differences of sixth order."""
    weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
    parts = (w * (function(k * step) - function(-k * step)) for k, w in weights.items())
    return sum(parts) / step
