"""AudioEncoder: shapes, refusals. Its numbers are Whisper's: tests/interop/test_values.py."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxattn.nn import AudioEncoder, Encoder, TransformerBlock
from jaxattn.positions import sinusoidal
from tests.nn.modules import normal, run, shuffled


def make():
    rngs, options = nnx.Rngs(0), dict(param_dtype=jnp.float64)
    encoder = Encoder(1, lambda rngs: TransformerBlock(6, 2, rngs=rngs, **options), rngs=rngs)
    return AudioEncoder(5, 4, encoder, rngs=rngs, **options)


def test_any_batch_and_every_frame():
    """A frame reaches its vector and, by the encoder, all others."""
    model, x = shuffled(make), normal(0, 2, 3, 8, 5)
    out = run(lambda model, x: model(x), model, x)
    assert out.shape == (2, 3, 4, 6)
    one = run(lambda model, x: model(x), model, x[1, 2])
    np.testing.assert_allclose(one, out[1, 2], rtol=1e-12, atol=1e-12)
    other = run(lambda model, x: model(x), model, x[1, 2].at[7].add(1.0))
    assert (np.abs(other - one) > 1e-6).any(axis=-1).all()


def test_positions_start_as_sines():
    np.testing.assert_array_equal(make().positions[...], sinusoidal(jnp.arange(4), 6))


@pytest.mark.parametrize("shape", [(7, 5), (8, 4), (5,)])
def test_other_spectrograms(shape):
    model = nnx.eval_shape(make)
    with pytest.raises(ValueError, match=r"\[\*B, F, channels\] = \[\*B, \(8, 5\)\]"):
        model(jnp.zeros(shape))
