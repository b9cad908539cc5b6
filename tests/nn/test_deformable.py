"""DeformableAttention: where it looks at first, and that it is the function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxattn
from jaxattn.nn import DeformableAttention
from tests.calls import jit
from tests.nn.modules import normal, shapes, shuffled
from tests.tolerances import error

SHAPES = ((3, 4), (2, 2))


def layer(make=shuffled):
    return make(
        lambda: DeformableAttention(
            8, 4, levels=2, points=3, param_dtype=jnp.float64, rngs=nnx.Rngs(0)
        )
    )


def inputs():
    reference = jnp.asarray(np.random.default_rng(3).uniform(size=(2, 5, 2)))
    return normal(1, 2, 5, 8), reference, normal(2, 2, 16, 8)


def test_parameters_and_their_shapes():
    got = shapes(lambda: DeformableAttention(8, 4, levels=2, points=3, rngs=nnx.Rngs(0)))
    assert {path[0]: shape for path, (shape, _) in got.items() if path[1] == "kernel"} == {
        "value": (8, 4, 2),
        "offsets": (8, 4, 2, 3, 2),
        "weights": (8, 4, 6),
        "out": (4, 2, 8),
    }


def test_at_first_heads_look_around():
    """Offsets do not depend on the query, weights are equal, and the four heads look four ways."""
    offsets = np.asarray(layer(lambda make: make()).offsets.bias[...])
    assert offsets.shape == (4, 2, 3, 2)
    want = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    for point in range(3):
        assert error(offsets[:, 0, point], (point + 1.0) * want) <= 1e-15
    np.testing.assert_array_equal(offsets[:, 0], offsets[:, 1])


def test_is_the_function_and_everything_learns():
    module, (query, reference, value) = layer(), inputs()
    graph, state = nnx.split(module)

    @jit
    def run(state):
        module = nnx.merge(graph, state)
        locations = jaxattn.sampling_locations(reference, module.offsets(query), SHAPES)
        weights = jax.nn.softmax(module.weights(query)).reshape(2, 5, 4, 2, 3)
        heads = jaxattn.deformable_attention(module.value(value), SHAPES, locations, weights)
        loss = lambda s: jnp.sum(nnx.merge(graph, s)(query, reference, value, shapes=SHAPES) ** 2)
        out = module(query, reference, value, shapes=SHAPES)
        return out, module.out(heads), jax.grad(loss)(state)

    out, want, gradients = run(state)
    assert out.shape == (2, 5, 8) and error(out, want) <= 1e-14
    assert all((np.asarray(g) != 0).any() for g in jax.tree.leaves(gradients))


def test_bad_input():
    query, reference, value = inputs()
    with pytest.raises(ValueError, match="width = 8 must be a multiple of num_heads = 3"):
        DeformableAttention(8, 3, levels=2, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="levels must be at least 1"):
        DeformableAttention(8, 4, levels=0, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"value must be \[\*B, T, D\] with D = width = 8"):
        layer()(query, reference, value[..., :7], shapes=SHAPES)
    with pytest.raises(ValueError, match="with L = 1 levels"):
        layer()(query, reference, value, shapes=((4, 4),))
    with pytest.raises(ValueError, match="got S = 16"):
        layer()(query, reference, value, shapes=((4, 4), (2, 2)))
