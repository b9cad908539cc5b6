"""TextEncoder and EncoderDecoder: who sees whom, and that padding has no say."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import (
    Decoder,
    Encoder,
    EncoderDecoder,
    FeedForward,
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    ResidualBlock,
    TextEncoder,
    TransformerBlock,
)
from tests.nn.modules import run, shuffled
from tests.tolerances import error

WIDE = dict(param_dtype=jnp.float64)
TOKENS = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])
VALID = jnp.array([[True] * 5, [True] * 3 + [False] * 2])


def norm(width):
    return LayerNorm(width, epsilon=1e-12, **WIDE)


def bert(rngs):
    block = lambda rngs: TransformerBlock(8, 2, norm="post", rngs=rngs, **WIDE)
    encoder = Encoder(2, block, make_norm=None, rngs=rngs)
    return TextEncoder(11, encoder, context=6, kinds=2, make_norm=norm, rngs=rngs, **WIDE)


def called(module, *inputs, **options):
    return module(*inputs, **options)


def test_embeddings_are_summed_and_normalised():
    module = shuffled(lambda: bert(nnx.Rngs(0)))
    kinds = jnp.array([[0, 0, 1, 1, 1]] * 2)
    tables = (np.asarray(t.embedding[...]) for t in (module.embed, module.positions, module.kinds))
    words, places, sorts = tables
    x = words[np.asarray(TOKENS)] + places[:5] + sorts[np.asarray(kinds)]
    x = run(called, module.norm, jnp.asarray(x))
    want = run(called, module.encoder, x)
    assert error(run(called, module, TOKENS, kinds), want) <= 1e-13
    first = run(called, module, TOKENS)
    assert error(first, run(called, module, TOKENS, jnp.zeros_like(TOKENS))) == 0


def test_padding_has_no_say():
    module = shuffled(lambda: bert(nnx.Rngs(0)))
    got = run(called, module, TOKENS, valid=VALID)
    assert error(got[1, :3], run(called, module, TOKENS[1, :3])) <= 1e-12
    assert error(got[0], run(called, module, TOKENS[0])) <= 1e-12
    other = run(called, module, TOKENS.at[1, 3:].set(7), valid=VALID)
    np.testing.assert_array_equal(got[1, :3], other[1, :3])


@pytest.mark.slow
def test_decoder_sees_the_inputs_and_what_came_before():
    def make():
        rngs = nnx.Rngs(0)

        def block(rngs):
            own, other = (MultiHeadAttention(2, 8, rngs=rngs, **WIDE) for _ in range(2))
            return ResidualBlock(own, FeedForward(8, rngs=rngs, **WIDE), cross_attention=other)

        stack = Decoder(1, block, rngs=rngs)
        sizes = dict(vocabulary=11, width=8, context=6, **WIDE)
        return EncoderDecoder(bert(rngs), LanguageModel(stack=stack, rngs=rngs, **sizes))

    module, target = shuffled(make), jnp.array([[1, 2, 3], [4, 5, 6]])
    want = run(called, module, TOKENS, target, valid=VALID)
    later = run(called, module, TOKENS, target.at[:, 2].set(0), valid=VALID)
    np.testing.assert_array_equal(want[:, :2], later[:, :2])
    assert (want[:, 2] != later[:, 2]).any()
    padded = run(called, module, TOKENS.at[1, 4].set(3), target, valid=VALID)
    np.testing.assert_array_equal(want, padded)
    moved = run(called, module, TOKENS.at[:, 1].set(8), target, valid=VALID)
    assert (np.abs(want - moved).max(axis=-1) > 1e-6).all()


def test_bad_input():
    with pytest.raises(ValueError, match=r"T ≤ context = 6, got shape \[1, 7\]"):
        nnx.eval_shape(lambda: bert(nnx.Rngs(0))(jnp.zeros((1, 7), int)))
    with pytest.raises(TypeError, match="tokens must be an integer array"):
        nnx.eval_shape(lambda: bert(nnx.Rngs(0))(jnp.zeros((1, 3))))
