"""What released attentions get wrong, rows V1 to V13: ours is right, forward and in gradients.

Row names are those of the project's list of defects. Rows about modules, caches and kernels are
tested where these are; the others are in test_defects_others.py and test_defects_reported.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxattn
from jaxattn.masks import Causal, Lengths, SlidingWindow
from tests import calls, oracle
from tests.defects import arrays, gradients, row
from tests.tolerances import assert_close, error

# --- V1 to V13 ---------------------------------------------------------------------------------


@row("V1")
def test_float64_is_float64(row, implementation):
    calls.check(implementation, calls.heads(queries=8, keys=8, count=2, size=16, value_size=16))


@row("V1")
@pytest.mark.parametrize("order", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_derivatives_of_three_orders(row, implementation, order):
    operands = arrays(queries=3, keys=3, count=1, key_heads=1, size=2, value_size=2, batch=())
    run = jax.jit(functools.partial(jaxattn.attention, implementation=implementation))
    check_grads(run, operands, order=order, eps=1e-5, rtol=1e-6, atol=1e-7)


@row("V1")
def test_third_derivative(row, implementation):
    """Reverse over reverse over reverse, against a stencil of stencils of the oracle."""
    operands = calls.heads(batch=(), queries=2, keys=3, count=1, key_heads=1, value_size=2)
    directions = [calls.like(operands, seed) for seed in (1, 2, 3)]

    def loss(operands):
        return jnp.sum(jnp.sin(jaxattn.attention(**operands, implementation=implementation)))

    def along(function, u):
        return lambda x: sum(jnp.sum(g * u[name]) for name, g in jax.grad(function)(x).items())

    def moved(*steps):
        shift = lambda name: sum(t * u[name] for t, u in zip(steps, directions, strict=True))
        at = {name: x + shift(name) for name, x in operands.items()}
        return np.sin(oracle.attention(**at).out).sum()

    got = calls.jit(functools.reduce(along, directions, loss))(operands)
    d = functools.partial(calls.derivative, step=0.02)
    want = d(lambda r: d(lambda s: d(lambda t: moved(r, s, t))))
    assert error(got, want) < 1e-7  # three stencils, each dividing its rounding by the step


@row("V2")
@pytest.mark.parametrize("value_size", [1, 16])
def test_value_head_size_of_its_own(row, implementation, value_size):
    calls.check(implementation, calls.heads(size=8, value_size=value_size))


@row("V3")
def test_a_masked_row_is_zero(row, implementation):
    allowed = np.ones((1, 1, 4, 4), bool)
    allowed[:, :, 1] = False
    operands = calls.heads(batch=(1,), queries=4, keys=4)
    calls.check(implementation, operands, {"mask": allowed})
    partial = calls.partial_attention(**operands, mask=allowed, implementation=implementation)
    assert (partial.out[:, 1] == 0).all() and (partial.lse[:, 1] == -jnp.inf).all()
    only = allowed & (np.arange(4) == 1)[:, None]  # nothing but the empty row: no gradient at all
    for gradient in gradients(implementation, operands.values(), mask=only):
        assert (gradient == 0).all()


@row("V4")
def test_key_length_zero(row, implementation):
    mask, lengths = Lengths(key=jnp.array([0, 3])), np.array([0, 3])
    operands = calls.heads()
    out = calls.attention(**operands, mask=mask, implementation=implementation)
    assert (out[0] == 0).all()
    told = {"mask": np.arange(7) < lengths[:, None, None, None]}
    calls.check(implementation, operands, {"mask": mask}, told)


@row("V5")
@pytest.mark.parametrize(
    ("poison", "where"), [(np.nan, "both"), (np.nan, "key"), (np.inf, "value"), (-np.inf, "both")]
)
def test_poison_in_padding(row, implementation, poison, where):
    clean = calls.heads(queries=4, keys=6)
    dirty = {name: x.copy() for name, x in clean.items()}
    for name in ("key", "value") if where == "both" else (where,):
        dirty[name][:, 4:] = poison
    short = {name: x if name == "query" else x[:, :4] for name, x in clean.items()}
    cotangent = np.ones((2, 4, 4, 6))
    run = functools.partial(calls.out_and_gradients, implementation=implementation)
    out, gradient = run(dirty, cotangent, mask=Lengths(key=4))
    same, same_gradient = run(clean, cotangent, mask=Lengths(key=4))
    np.testing.assert_array_equal(out, same)
    jax.tree.map(np.testing.assert_array_equal, gradient, same_gradient)
    unpadded, unpadded_gradient = run(short, cotangent)
    assert_close(out, unpadded)
    assert_close(gradient["query"], unpadded_gradient["query"])
    for name in ("key", "value"):
        assert_close(gradient[name][:, :4], unpadded_gradient[name])
        assert (gradient[name][:, 4:] == 0).all()


@row("V6")
def test_gradient_of_logsumexp(row, implementation):
    operands = calls.heads()

    def total(operands):
        partial = jaxattn.partial_attention(**operands, implementation=implementation)
        return jnp.sum(partial.lse)

    got = calls.jit(jax.grad(total))(operands)
    direction = calls.like(operands)

    def along(step):
        moved = {name: x + step * direction[name] for name, x in operands.items()}
        return oracle.attention(**moved).lse.sum()

    want = calls.derivative(along)
    assert abs(want) > 1e-3  # not the zero that others return
    assert error(sum(np.sum(got[name] * direction[name]) for name in got), want) < calls.STENCIL
    assert (got["value"] == 0).all()


@row("V6")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_logsumexp_is_float32(row, implementation, dtype):
    operands = arrays(dtype)
    partial = calls.partial_attention(*operands, implementation=implementation)
    assert partial.lse.dtype == partial.out.dtype == jnp.float32
    want = oracle.attention(*operands)
    assert_close(partial.lse, want.lse)
    assert_close(partial.out, want.out)
    empty = calls.partial_attention(*operands, mask=Lengths(key=0), implementation=implementation)
    assert (empty.lse == -jnp.inf).all()


@row("V7")
def test_alignment_is_said(row, implementation):
    operands = calls.heads(queries=1, keys=8)
    with pytest.raises(ValueError, match='align="start".*align="end"'):
        jaxattn.attention(*operands.values(), mask=Causal(), implementation=implementation)
    calls.check(implementation, operands, {"mask": Causal("end")}, {})
    first = {"mask": np.arange(8)[None] == 0}
    calls.check(implementation, operands, {"mask": Causal("start")}, first)


@row("V8")
def test_bias_of_rank_three_is_an_error(row, implementation):
    operands = arrays(count=2)
    bias = jnp.zeros((2, 5, 7))  # [B, T, S], and B = N
    with pytest.raises(ValueError, match=r"bias must be \[T, S\] or \[\*B, N, T, S\]"):
        jaxattn.attention(*operands, bias=bias, implementation=implementation)


@row("V9")
def test_mask_and_bias_of_key_heads(row, implementation):
    rng = np.random.default_rng(3)
    mask, bias = rng.random((2, 2, 5, 7)) < 0.7, rng.standard_normal((2, 2, 5, 7))
    calls.check(implementation, calls.heads() | {"bias": bias}, {"mask": mask})


@row("V10")
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(2, 0)], ids=["causal", "window"])
def test_export_with_symbolic_length(row, implementation, mask):
    size = jax.export.symbolic_shape("t")[0]
    shape = jax.ShapeDtypeStruct((1, size, 2, 3), jnp.float64)
    run = functools.partial(jaxattn.attention, mask=mask, implementation=implementation)
    exported = jax.export.export(jax.jit(run))(shape, shape, shape)
    operands = arrays(batch=(1,), queries=5, keys=5, count=2, size=3, value_size=3)
    assert_close(exported.call(*operands), run(*operands))


@row("V11")
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_lengths_of_any_integer_dtype(row, implementation, dtype):
    operands, lengths = calls.heads(), np.array([3, 7])
    mask = Lengths(key=jnp.asarray(lengths, dtype))
    out = calls.attention(**operands, mask=mask, implementation=implementation)
    want = oracle.attention(**operands, mask=np.arange(7) < lengths[:, None, None, None])
    assert_close(out, want.out)


@row("V12")
def test_bias_row_of_minus_inf(row, implementation):
    operands = calls.heads(batch=(1,), queries=4, keys=4)
    bias = np.zeros((4, 4))
    bias[1] = -np.inf
    bias[2, :2] = -np.inf
    calls.check(implementation, operands, {"bias": bias})
    out, gradient = calls.out_and_gradients(
        operands | {"bias": bias}, np.ones((1, 4, 4, 6)), implementation=implementation
    )
    assert (out[:, 1] == 0).all() and (gradient["query"][:, 1] == 0).all()
    assert jax.tree.all(jax.tree.map(lambda x: np.isfinite(x).all(), gradient))
    assert (gradient["bias"][bias == -np.inf] == 0).all()


@row("V13")
def test_heads_before_tokens_is_hinted_at(row, implementation):
    wrong = [jnp.swapaxes(x, -2, -3) for x in arrays(queries=5, keys=7, count=4, key_heads=4)]
    with pytest.raises(ValueError, match=r"tokens before heads.*swapaxes"):
        jaxattn.attention(*wrong, implementation=implementation)
