"""Blocks of detectors: ConvBlock, position-sensitive attention, C2PSA, C3k2. Float32, as they run.

Flax's BatchNorm keeps its statistics in float32.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import C2PSA, Bottleneck, C3k2, ConvBlock, PositionSensitiveAttention, PSABlock
from tests.nn.modules import normal, shapes
from tests.tolerances import error


def evaluated(make):
    """A module with random parameters that normalises by random statistics."""
    module = nnx.eval_shape(make)
    state = nnx.state(module, (nnx.Param, nnx.BatchStat))
    leaves, tree = jax.tree.flatten(state)
    leaves = [0.3 * normal(i, *x.shape, dtype=x.dtype) for i, x in enumerate(leaves)]
    nnx.update(module, jax.tree.unflatten(tree, leaves))
    for _, layer in nnx.iter_modules(module):
        if isinstance(layer, nnx.BatchNorm):
            layer.var[...] = 1 + jnp.abs(layer.var[...])
    module.eval()
    return module


@nnx.jit
def call(module, x):
    return module(x)


def numbers(module):
    return jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(module)))


def conv_by_hand(p, x, groups=1, activation=True):
    """Convolution at stride 1, normalisation and SiLU of `[height, width, D]`, place by place."""
    kernel = p["conv"]["kernel"].astype(np.float64)
    half, out_features = kernel.shape[0] // 2, kernel.shape[-1]
    height, width, features = x.shape
    out = np.zeros((height, width, out_features))
    each_in, each_out = features // groups, out_features // groups
    for y, z, o in np.ndindex(*out.shape):
        group = o // each_out
        channels = slice(group * each_in, (group + 1) * each_in)
        for dy in range(-half, half + 1):
            for dz in range(-half, half + 1):
                if 0 <= y + dy < height and 0 <= z + dz < width:
                    tap = kernel[dy + half, dz + half, :, o]
                    out[y, z, o] += x[y + dy, z + dz, channels] @ tap
    norm = p["norm"]
    out = (out - norm["mean"]) / np.sqrt(norm["var"] + 1e-3) * norm["scale"] + norm["bias"]
    return out / (1 + np.exp(-out)) if activation else out


def attention_by_hand(p, x, heads):
    query, key, value = (conv_by_hand(p[n], x, activation=False) for n in ("query", "key", "value"))
    height, width, features = value.shape
    out = np.zeros((height * width, features))
    flat = [a.reshape(height * width, heads, -1) for a in (query, key, value)]
    for h in range(heads):
        q, k, v = (a[:, h] for a in flat)
        scores = np.exp(q @ k.T / np.sqrt(q.shape[-1]))
        size = v.shape[-1]
        out[:, h * size : (h + 1) * size] = scores @ v / scores.sum(axis=-1, keepdims=True)
    position = conv_by_hand(p["position"], value, groups=features, activation=False)
    return conv_by_hand(p["out"], out.reshape(value.shape) + position, activation=False)


def psa_by_hand(p, x, heads):
    x = x + attention_by_hand(p["attention"], x, heads)
    return x + conv_by_hand(p["out"], conv_by_hand(p["hidden"], x), activation=False)


def picture(features, height=3, width=4):
    return normal(9, height, width, features, dtype=jnp.float32)


def test_conv_block():
    module = evaluated(lambda: ConvBlock(4, 6, kernel_size=3, groups=2, rngs=nnx.Rngs(0)))
    x = picture(4)
    assert error(call(module, x), conv_by_hand(numbers(module), np.asarray(x), groups=2)) <= 1e-5


def test_stride_halves_the_size():
    make = lambda: ConvBlock(4, 6, kernel_size=3, stride=2, rngs=nnx.Rngs(0))
    assert call(evaluated(make), picture(4, 5, 6)).shape == (3, 3, 6)


def test_position_sensitive_attention():
    module = evaluated(lambda: PositionSensitiveAttention(8, 2, rngs=nnx.Rngs(0)))
    x = picture(8)
    assert error(call(module, x), attention_by_hand(numbers(module), np.asarray(x), 2)) <= 1e-5


def test_c2psa():
    module = evaluated(lambda: C2PSA(8, blocks=2, num_heads=2, rngs=nnx.Rngs(0)))
    x, p = picture(8), numbers(module)
    kept, attended = np.split(conv_by_hand(p["divide"], np.asarray(x)), 2, axis=-1)
    for block in (0, 1):
        attended = psa_by_hand(p["blocks"][block], attended, 2)
    want = conv_by_hand(p["join"], np.concatenate([kept, attended], axis=-1))
    assert error(call(module, x), want) <= 1e-5


@pytest.mark.parametrize("attention", [False, True])
def test_c3k2(attention):
    module = evaluated(
        lambda: C3k2(3, 8, blocks=2, attention=attention, num_heads=2, rngs=nnx.Rngs(0))
    )
    x, p = picture(3), numbers(module)
    parts = np.split(conv_by_hand(p["divide"], np.asarray(x)), 2, axis=-1)
    for stage in (0, 1):
        q = p["stages"][stage]
        first = q["layers"][0] if attention else q
        hidden = conv_by_hand(first["second"], conv_by_hand(first["first"], parts[-1]))
        out = parts[-1] + hidden
        parts.append(psa_by_hand(q["layers"][1], out, 2) if attention else out)
    want = conv_by_hand(p["join"], np.concatenate(parts, axis=-1))
    assert error(call(module, x), want) <= 1e-5


@pytest.mark.slow
def test_training_normalises_by_the_batch_and_everything_learns():
    module = nnx.eval_shape(lambda: C2PSA(8, rngs=nnx.Rngs(0)))
    state = nnx.state(module)
    leaves, tree = jax.tree.flatten(state)
    leaves = [0.5 * normal(i, *x.shape, dtype=x.dtype) for i, x in enumerate(leaves)]
    nnx.update(module, jax.tree.unflatten(tree, leaves))
    module.train()
    x = normal(9, 2, 3, 4, 8, dtype=jnp.float32)

    @nnx.jit
    def learn(module):
        loss = lambda module: jnp.sum(jnp.sin(module(x)))
        return nnx.grad(loss)(module)

    before = np.asarray(module.join.norm.mean[...])
    gradients = learn(module)
    assert all((np.asarray(g) != 0).any() for g in jax.tree.leaves(gradients))
    assert (np.asarray(module.join.norm.mean[...]) != before).any()


def test_heads_by_default_are_64_channels():
    got = shapes(lambda: PSABlock(128, rngs=nnx.Rngs(0)))
    assert got["attention", "query", "conv", "kernel"][0] == (1, 1, 128, 64)  # 2 heads of 32
    assert got["attention", "position", "conv", "kernel"][0] == (3, 3, 1, 128)
    assert nnx.eval_shape(lambda: PSABlock(128, rngs=nnx.Rngs(0))).attention.num_heads == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda r: ConvBlock(4, 6, groups=4, rngs=r), "out_features = 6 must be a multiple of gro"),
        (lambda r: ConvBlock(4, 6, kernel_size=2, rngs=r), "kernel_size must be odd"),
        (lambda r: PSABlock(8, 3, rngs=r), "features = 8 must be a multiple of num_heads = 3"),
        (lambda r: C2PSA(7, rngs=r), "features = 7 must be a multiple of 2"),
        (lambda r: C2PSA(8, blocks=0, rngs=r), "blocks must be at least 1"),
        (lambda r: C3k2(3, 7, rngs=r), "out_features = 7 must be a multiple of 2"),
        (lambda r: Bottleneck(0, rngs=r), "in_features"),
    ],
)
def test_bad_sizes(make, message):
    with pytest.raises(ValueError, match=message):
        make(nnx.Rngs(0))


def test_bad_images():
    module = nnx.eval_shape(lambda: C2PSA(8, rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match=r"x must be \[\*B, height, width, D\] with D = in_feat"):
        module(jnp.ones((3, 4, 7), jnp.float32))
    with pytest.raises(ValueError, match="at least 3 axes"):
        module(jnp.ones((3, 8), jnp.float32))
