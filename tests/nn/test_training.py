"""Models in Flax's and JAX's machinery: transforms, checkpoints, meshes, mixed precision, Linen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax.sharding import NamedSharding, PartitionSpec

from jaxattn.masks import Causal
from jaxattn.nn import (
    LanguageModel,
    MultiHeadAttention,
    Scoring,
    Stack,
    TransformerBlock,
    generate,
    next_token_loss,
)
from jaxattn.positions import Rotary
from tests import calls
from tests.nn.modules import normal, run, shuffled
from tests.tolerances import error

SIZES = dict(vocabulary=11, width=8, layers=1, num_heads=2, context=6)
TOKENS = jnp.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8], [9, 7, 9, 3, 2, 3], [8, 4, 6, 2, 6, 4]])


def model(**options):
    return shuffled(lambda: LanguageModel(rngs=nnx.Rngs(0), **SIZES, **options))


def loss(module, tokens):
    return next_token_loss(module(tokens), tokens)


def called(module, *inputs):
    return module(*inputs)


@pytest.mark.slow
def test_an_optimiser_of_flax_trains_it():
    module = model()
    optimiser = nnx.Optimizer(module, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimiser):
        value, gradient = nnx.value_and_grad(loss)(module, TOKENS)
        with jax.numpy_dtype_promotion("standard"):  # optax needs it
            optimiser.update(module, gradient)
        return value

    losses = [float(step(module, optimiser)) for _ in range(8)]
    assert losses[-1] < losses[0] and len(set(losses)) == 8


@pytest.mark.slow
def test_split_merge_and_state_change_nothing():
    module = model(dropout_rate=0.5)
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    again = nnx.merge(graph, params, rest)
    other = nnx.eval_shape(lambda: LanguageModel(rngs=nnx.Rngs(1), dropout_rate=0.5, **SIZES))
    nnx.update(other, nnx.state(module))
    draw = lambda m: m(TOKENS, deterministic=False)
    first = run(draw, module)
    np.testing.assert_array_equal(first, run(draw, again))
    np.testing.assert_array_equal(first, run(draw, other))
    went_on = [nnx.jit(draw)(module) for _ in range(2)]
    assert (went_on[0] != went_on[1]).any()


@pytest.mark.slow
def test_layers_in_a_scan_of_flax():
    """A user's own loop over stacked layers, as flax.nnx has it."""
    x = normal(1, 2, 5, 8, dtype=jnp.float32)

    @nnx.jit
    def both():
        make = lambda rngs: MultiHeadAttention(2, 8, scoring=Scoring(rotary=Rotary()), rngs=rngs)
        layers = nnx.split_rngs(splits=3)(nnx.vmap(make))(nnx.Rngs(0))
        scan = nnx.scan(
            lambda x, m: m(x, mask=Causal()), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry
        )
        graph, state = nnx.split(layers)
        want = x
        for i in range(3):
            want = nnx.merge(graph, jax.tree.map(lambda p, i=i: p[i], state))(want, mask=Causal())
        return scan(x, layers), want

    assert error(*both()) <= 1e-6


def test_orbax_round_trip(tmp_path):
    checkpoint = pytest.importorskip("orbax.checkpoint")
    module = model(tied=False)
    state = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    with checkpoint.StandardCheckpointer() as saver:
        saver.save(tmp_path / "saved", state)
        saver.wait_until_finished()
        loaded = saver.restore(tmp_path / "saved", jax.tree.map(jnp.zeros_like, state))
    other = nnx.eval_shape(lambda: LanguageModel(rngs=nnx.Rngs(1), tied=False, **SIZES))
    empty = nnx.state(other, nnx.Param)
    nnx.replace_by_pure_dict(empty, loaded)
    nnx.update(other, empty)
    np.testing.assert_array_equal(run(called, other, TOKENS), run(called, module, TOKENS))


@pytest.mark.parametrize("kind", [pytest.param("Auto", marks=pytest.mark.slow), "Explicit"])
def test_on_a_mesh(kind):
    """Batch over 4 devices, parameters on each: loss, gradient, and cached steps."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(getattr(jax.sharding.AxisType, kind),))
    module = model(positions="sinusoidal") if kind == "Auto" else None
    layer = shuffled(
        lambda: MultiHeadAttention(2, 8, scoring=Scoring(rotary=Rotary()), rngs=nnx.Rngs(0))
    )
    x = normal(1, 4, 6, 8, dtype=jnp.float32)
    with jax.set_mesh(mesh):
        if kind == "Auto":
            tokens = jax.device_put(TOKENS, NamedSharding(mesh, PartitionSpec("data")))
            got = run(loss_and_gradient, module, tokens)
            written = run(generate, module, tokens[:, :3], static=dict(steps=3)).tokens
        spread = jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
        steps = run(two_parts, layer, spread)
    if kind == "Auto":
        want = run(loss_and_gradient, module, TOKENS)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)
        np.testing.assert_array_equal(
            written, run(generate, module, TOKENS[:, :3], static=dict(steps=3)).tokens
        )
    assert steps.sharding.spec[0] == "data"
    assert error(steps, run(whole, layer, x)) <= 1e-6


def whole(module, x):
    return module(x, mask=Causal())


def two_parts(module, x):
    cache = module.init_cache(4, 6)
    first, cache = module.extend(x[:, :4], cache)
    second, cache = module.extend(x[:, 4:], cache)
    return jnp.concatenate([first, second], axis=1)


def loss_and_gradient(module, tokens):
    graph, state = nnx.split(module)
    return jax.value_and_grad(lambda state: loss(nnx.merge(graph, state), tokens))(state)


@pytest.mark.slow
def test_mixed_precision_keeps_parameters_and_gradients_wide():
    half, exact = model(dtype=jnp.bfloat16), model()
    got, gradient = run(loss_and_gradient, half, TOKENS)
    want, exact_gradient = run(loss_and_gradient, exact, TOKENS)
    assert got.dtype == jnp.float32 and abs(got - want) < 0.05 * want
    for ours, theirs in zip(
        jax.tree.leaves(gradient), jax.tree.leaves(exact_gradient), strict=True
    ):
        assert ours.dtype == jnp.float32
        assert error(ours, theirs) < 0.1


def test_in_linen():
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x, deterministic):
            block = nnx.bridge.to_linen(TransformerBlock, 8, num_heads=2, dropout_rate=0.1)
            return linen.Dense(3)(block(x, mask=Causal(), deterministic=deterministic))

    x = normal(1, 2, 5, 8, dtype=jnp.float32)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    outer = Model()
    variables = jax.jit(functools.partial(outer.init, deterministic=True))(keys, x)
    apply = calls.jit(outer.apply, static_argnames="deterministic")
    still = apply(variables, x, deterministic=True)
    np.testing.assert_array_equal(still, apply(variables, x, deterministic=True, rngs=keys))
    dropped = apply(variables, x, deterministic=False, rngs={"dropout": jax.random.key(2)})
    assert still.shape == (2, 5, 3) and error(still, dropped) > 0.01
    assert "ToLinen_0" in variables["params"]


@pytest.mark.slow
def test_a_stack_in_linen():
    def make(rngs):
        return Stack(2, lambda rngs: TransformerBlock(8, 2, rngs=rngs), rngs=rngs)

    module = nnx.bridge.to_linen(make)
    x = normal(1, 2, 5, 8, dtype=jnp.float32)
    out, variables = jax.jit(module.init_with_output)(jax.random.key(0), x)
    assert out.shape == x.shape and "stack" not in variables
