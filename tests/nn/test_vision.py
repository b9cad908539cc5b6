"""VisionTransformer: patches in reading order, positions, and one vector."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import Encoder, TransformerBlock, VisionTransformer
from tests.nn.modules import normal, run, shapes, shuffled
from tests.tolerances import error

WIDE = dict(param_dtype=jnp.float64)


def model(**options):
    """Pictures of 4 by 6 in patches of 2, width 8, float64."""

    def make():
        rngs = nnx.Rngs(0)
        encoder = Encoder(1, lambda rngs: TransformerBlock(8, 2, rngs=rngs, **WIDE), rngs=rngs)
        return VisionTransformer((4, 6), 2, encoder, rngs=rngs, **WIDE, **options)

    return shuffled(make)


def called(module, *inputs):
    return module(*inputs)


PICTURE = normal(1, 2, 4, 6, 3)


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_is_its_equation(pool):
    module = model(pool=pool, classes=5)
    kernel, bias = (np.asarray(p[...]) for p in (module.patches.kernel, module.patches.bias))
    patches = [
        np.einsum("bhwc,hwcd->bd", np.asarray(PICTURE[:, y : y + 2, x : x + 2]), kernel) + bias
        for y in (0, 2)
        for x in (0, 2, 4)
    ]
    if pool == "class":
        patches = [np.broadcast_to(np.asarray(module.class_token[...]), (2, 8)), *patches]
    x = np.stack(patches, axis=1) + np.asarray(module.positions[...])
    x = np.asarray(run(called, module.encoder, jnp.asarray(x)))
    pooled = x[:, 0] if pool == "class" else x.mean(axis=1)
    want = pooled @ np.asarray(module.head.kernel[...]) + np.asarray(module.head.bias[...])
    assert error(run(called, module, PICTURE), want) <= 1e-13


def test_parameters_and_vectors_without_a_head():
    got = shapes(model)
    assert got["positions",][0] == (7, 8) and got["patches", "kernel"][0] == (2, 2, 3, 8)
    assert not any(path[0] == "head" for path in got)
    assert shapes(lambda: model(pool="mean"))["positions",][0] == (6, 8)
    module = model()
    tokens = run(VisionTransformer.tokens, module, PICTURE)
    assert tokens.shape == (2, 7, 8)
    assert error(run(called, module, PICTURE), tokens[:, 0]) <= 1e-14


@pytest.mark.slow
def test_any_number_of_batch_axes():
    module = model()
    want = run(called, module, PICTURE)
    assert error(run(called, module, PICTURE[0]), want[0]) <= 1e-13
    assert error(run(called, module, PICTURE[None]), want[None]) <= 1e-13


def test_bad_input():
    with pytest.raises(ValueError, match=r"image_size\[1\] = 7 must be a multiple of patch = 2"):
        encoder = nnx.eval_shape(lambda: model()).encoder
        VisionTransformer((4, 7), 2, encoder, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="pool must be one of 'class', 'mean'"):
        model(pool="max")
    with pytest.raises(ValueError, match=r"picture must be .*\(4, 6, 3\).*channels are the last"):
        nnx.eval_shape(lambda: model()(jnp.ones((2, 3, 4, 6))))
