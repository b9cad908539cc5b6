"""Stack, ResidualBlock, Encoder, Decoder: blocks in order, the same under remat and scan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxattn.masks import Causal, Lengths
from jaxattn.nn import (
    Decoder,
    Encoder,
    FeedForward,
    MultiHeadAttention,
    Projections,
    ResidualBlock,
    RMSNorm,
    Scoring,
    Stack,
    TransformerBlock,
)
from jaxattn.positions import Rotary
from tests.jaxprs import equations
from tests.nn.modules import normal, run, shapes, shuffled, stacked
from tests.tolerances import error

WIDE = dict(param_dtype=jnp.float64)


def norm(width):
    return RMSNorm(width, epsilon=1e-5, **WIDE)


def llama(rngs, context=False, rate=0.0):
    """A block as in Llama, with attention to a context if asked for."""
    own, other = (
        MultiHeadAttention(
            4,
            8,
            num_kv_heads=2,
            projections=Projections(use_bias=False),
            scoring=Scoring(rotary=rotary),
            dropout_rate=rate,
            rngs=rngs,
            **WIDE,
        )
        for rotary in (Rotary(), None)
    )
    swiglu = FeedForward(
        8, 12, activation=jax.nn.silu, gated=True, use_bias=False, rngs=rngs, **WIDE
    )
    options = dict(cross_attention=other if context else None, make_norm=norm)
    return ResidualBlock(own, swiglu, layer_scale=0.3, dropout_rate=rate, rngs=rngs, **options)


def stack(kind=Stack, context=False, rate=0.0, **options):
    """Three such blocks on width 8, float64."""

    def make():
        block = lambda rngs: llama(rngs, context, rate)
        return kind(3, block, make_norm=norm, rngs=nnx.Rngs(0), **options)

    return shuffled(make)


def called(module, *inputs, **options):
    return module(*inputs, **options)


X, Y = normal(1, 2, 5, 8), normal(2, 2, 4, 8)


def rms(x, scale):
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-5) * scale


def test_block_is_its_equations():
    module = shuffled(lambda: llama(nnx.Rngs(0), context=True))
    want = np.asarray(X)
    for name, sublayer in (
        ("attention", lambda x: run(called, module.attention, x, mask=Causal())),
        ("cross_attention", lambda x: run(called, module.cross_attention, x, Y)),
        ("feed_forward", lambda x: swiglu(module.feed_forward, x)),
    ):
        inner = rms(want, np.asarray(getattr(module, f"{name}_norm").scale[...]))
        added = sublayer(jnp.asarray(inner))
        want = want + np.asarray(added) * np.asarray(getattr(module, f"{name}_scale")[...])
    assert error(run(called, module, X, Y, mask=Causal()), want) <= 1e-13


def swiglu(module, x):
    """`silu(x G) * (x H) O` in NumPy."""
    gate, hidden, out = (
        np.asarray(layer.kernel[...]) for layer in (module.gate, module.hidden, module.out)
    )
    opened = x @ gate
    return (opened / (1 + np.exp(-opened)) * (x @ hidden)) @ out


@pytest.mark.slow
def test_stack_is_its_blocks_in_order():
    module = stack()
    want = X
    for block in module.blocks:
        want = run(called, block, want, mask=Causal())
    want = rms(np.asarray(want), np.asarray(module.norm.scale[...]))
    assert error(run(called, module, X, mask=Causal()), want) <= 1e-13


def loss_and_gradients(module, x):
    graph, state = nnx.split(module)
    return jax.value_and_grad(lambda x: jnp.sum(nnx.merge(graph, state)(x, mask=Causal()) ** 2))(x)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(dict(remat=True), marks=pytest.mark.slow),
        pytest.param(dict(scan=True), marks=pytest.mark.slow),
        dict(scan=True, remat=True),
    ],
)
def test_remat_and_scan_change_nothing(options):
    plain = stack()
    other = stack(**options)
    if "scan" in options:
        stacked(plain, other)
    for got, want in zip(
        run(loss_and_gradients, other, X), run(loss_and_gradients, plain, X), strict=True
    ):
        assert error(got, want) <= 1e-12


def test_scan_stacks_parameters_and_traces_one_block():
    got = shapes(lambda: stack(scan=True))
    assert got["blocks", "attention", "query", "kernel"][0] == (3, 8, 4, 2)
    assert got["norm", "scale"][0] == (8,)
    counted = []

    class Counted(TransformerBlock):
        def __call__(self, x, *args, **options):
            counted.append(x.shape)
            return super().__call__(x, *args, **options)

    module = nnx.eval_shape(
        lambda: Stack(5, lambda rngs: Counted(8, 2, rngs=rngs), scan=True, rngs=nnx.Rngs(0))
    )
    nnx.eval_shape(lambda m: m(jnp.ones((1, 3, 8), jnp.float32)), module)
    assert 1 <= len(counted) <= 2


@pytest.mark.slow
def test_scanned_layers_start_different():
    module = nnx.jit(
        lambda: Stack(
            2, lambda rngs: TransformerBlock(4, 1, rngs=rngs), scan=True, rngs=nnx.Rngs(0)
        )
    )()
    kernel = module.blocks.attention.query.kernel[...]
    assert (kernel[0] != kernel[1]).all()


@pytest.mark.parametrize("options", [dict(scan=True)])
def test_step_by_step_is_all_at_once(options):
    module = stack(Decoder, context=True, **options)
    valid = jnp.array([[True] * 5, [False, True, True, False, True]])
    seen = jnp.array([[True] * 4, [True, True, False, False]])

    def both(module):
        cache, outs = module.init_cache(2, 5, Y, context_valid=seen), []
        for part in (slice(0, 3), slice(3, 4), slice(4, 5)):
            out, cache = module.extend(X[:, part], cache, valid=valid[:, part])
            outs.append(out)
        kept = jnp.array([1, 2, 4])
        rows = [module(X[0], Y[0]), module(X[1, kept], Y[1], context_mask=seen[1][None, :])]
        return jnp.concatenate(outs, 1), rows

    got, rows = run(both, module)
    assert error(got[0], rows[0]) <= 1e-12
    assert error(got[1][np.array([1, 2, 4])], rows[1]) <= 1e-12


def step_equations(layers, **options):
    """How many equations there are in making a cache, and in a step with it."""
    block = lambda rngs: llama(rngs, context=True)
    module = nnx.eval_shape(lambda: Decoder(layers, block, rngs=nnx.Rngs(0), **options))
    graph, state = nnx.split(module)

    def first(state):
        return nnx.merge(graph, state).init_cache(2, 5, Y)

    def step(state, cache):
        return nnx.merge(graph, state).extend(X[:, :1], cache)

    cache = jax.eval_shape(first, state)
    traced = [jax.make_jaxpr(first)(state), jax.make_jaxpr(step)(state, cache)]
    return [sum(1 for _ in equations(jaxpr)) for jaxpr in traced]


def test_a_step_of_a_scanned_stack_does_not_grow_with_layers():
    assert step_equations(2, scan=True) == step_equations(6, scan=True)
    few, many = step_equations(2), step_equations(6)
    assert all(b > 2 * a for a, b in zip(few, many, strict=True))  # the count does see layers


@pytest.mark.parametrize("batch", [(), 2, pytest.param((2, 3), marks=pytest.mark.slow)])
def test_a_scanned_cache_has_its_layers_behind_the_batch(batch):
    module = nnx.eval_shape(lambda: stack(scan=True))
    cache = nnx.eval_shape(lambda m: m.init_cache(batch, 5), module)
    lead = batch if isinstance(batch, tuple) else (batch,)
    assert cache.own.key.shape == (*lead, 3, 5, 2, 2) and cache.own.length.shape == (*lead, 3)
    x = jnp.ones((*lead, 2, 8))
    out, after = nnx.eval_shape(lambda m, cache: m.extend(x, cache), module, cache)
    assert out.shape == x.shape
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, cache)


def test_a_scanned_cache_on_a_mesh_with_explicit_axes():
    module, mesh = stack(scan=True), jax.make_mesh((2,), ("data",), (AxisType.Explicit,))
    want, _ = run(extended, module, X)
    with jax.set_mesh(mesh):
        spread = jax.device_put(X, NamedSharding(mesh, PartitionSpec("data")))
        got, cache = run(extended, module, spread)
    assert error(got, want) <= 1e-12
    assert cache.own.key.sharding.spec[0] == cache.own.length.sharding.spec[0] == "data"


def extended(module, x):
    return module.extend(x, module.init_cache(2, 5))


@pytest.mark.slow
def test_encoder_sees_everything_and_decoder_what_came_before():
    changed = X.at[:, 4].set(0)
    for kind, moves in ((Encoder, True), (Decoder, False)):
        module = stack(kind)
        before, after = (run(called, module, x) for x in (X, changed))
        assert bool((before[:, 0] != after[:, 0]).any()) == moves


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, dict(remat=True), dict(scan=True)])
def test_dropout_is_one_for_each_block_and_off_in_evaluation(options):
    module = stack(rate=0.5, **options)
    module.train()
    first, second = (
        nnx.jit(lambda m: m(X, rngs=nnx.Rngs(dropout=seed)))(module) for seed in (0, 1)
    )
    assert error(first, second) > 0.01
    own = nnx.jit(lambda m: (m(X), m(X)))(module)
    assert error(*own) > 0.01  # the modules' own streams go on
    module.eval()
    quiet = stacked(stack(), stack(scan=True)) if "scan" in options else stack(**options)
    if "scan" in options:
        nnx.update(module, nnx.state(quiet, nnx.Param))
    assert error(run(called, module, X), run(called, quiet, X)) <= 1e-14


@pytest.mark.parametrize(
    "options",
    [dict(remat=True, scan=True), pytest.param(dict(remat=True), marks=pytest.mark.slow)],
)
def test_a_closed_over_stack_drops_by_the_given_stream(options):
    """Its own streams stay as they are, so that any transformation of JAX may go around it."""
    module = stack(rate=0.5, **options)
    module.train()
    before = nnx.state(module, nnx.RngCount)
    total = lambda x: jnp.sum(module(x, rngs=nnx.Rngs(dropout=7)))
    value, gradient = jax.jit(jax.value_and_grad(total))(X)
    assert jnp.isfinite(gradient).all() and abs(value - jax.jit(total)(X)) <= 1e-12
    jax.tree.map(np.testing.assert_array_equal, nnx.state(module, nnx.RngCount), before)


def test_padding_has_no_say():
    module = stack(Encoder)
    mask = Lengths(key=jnp.array([5, 3]))
    got = run(called, module, X, mask=mask)
    alone = run(called, module, X[1, :3])
    assert error(got[1, :3], alone) <= 1e-12


def test_bad_input():
    with pytest.raises(ValueError, match="layers must be at least 1"):
        Stack(0, llama, rngs=nnx.Rngs(0))
    module = stack()
    with pytest.raises(ValueError, match="context was given to a block without"):
        nnx.eval_shape(lambda: module(X, Y))
    with pytest.raises(ValueError, match="context is missing"):
        nnx.eval_shape(lambda: stack(Decoder, context=True)(X))
    with pytest.raises(ValueError, match="tuple of L = 3 caches.* got 2"):
        nnx.eval_shape(lambda: module.extend(X, module.init_cache(2, 5)[:2]))
    scanned, held = stack(scan=True), jax.eval_shape(lambda: module.init_cache(2, 5))
    with pytest.raises(ValueError, match=r"one BlockCache for all L = 3.*\[\*B, L\], got tuple"):
        nnx.eval_shape(lambda cache: scanned.extend(X, cache), held)
    with pytest.raises(ValueError, match=r"one BlockCache for all L = 3.*got \[2\]"):
        nnx.eval_shape(lambda cache: scanned.extend(X, cache), held[0])
    with pytest.raises(ValueError, match="holds C = 5 tokens, and after these 6 an example has 6"):
        scanned.extend(normal(1, 2, 6, 8), scanned.init_cache(2, 5))
    with pytest.raises(ValueError, match="tuple of L = 3 caches.* got BlockCache"):
        nnx.eval_shape(lambda: module.extend(X, scanned.init_cache(2, 5)))
