"""next_token_loss: nats for each token given those before it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.nn import next_token_loss
from tests.nn.modules import normal
from tests.tolerances import error

TOKENS = jnp.array([[0, 3, 1, 2], [4, 4, 0, 1]])


def probabilities(logits):
    """Softmax in NumPy."""
    terms = np.exp(np.asarray(logits, np.float64))
    return terms / terms.sum(-1, keepdims=True)


def test_is_the_equation():
    logits = normal(0, 2, 4, 5)
    p = probabilities(logits)
    pairs = [(b, i) for b in range(2) for i in range(3)]
    want = -np.mean([np.log(p[b, i, TOKENS[b, i + 1]]) for b, i in pairs])
    assert error(next_token_loss(logits, TOKENS), want) <= 1e-14


def test_gradient_is_probability_minus_truth():
    logits = normal(0, 2, 4, 5)
    want = probabilities(logits) - np.eye(5)[np.roll(TOKENS, -1, axis=1)]
    want[:, -1] = 0
    assert error(jax.grad(next_token_loss)(logits, TOKENS), want / 6) <= 1e-14


def test_is_at_least_float32_and_safe_for_large_logits():
    loss = next_token_loss(1e4 * normal(0, 2, 4, 5, dtype=jnp.bfloat16), TOKENS)
    assert loss.dtype == jnp.float32 and np.isfinite(loss)


@pytest.mark.parametrize(
    ("logits", "tokens", "error_type", "message"),
    [
        (jnp.ones((4, 5)), TOKENS, ValueError, r"got shapes \[4, 5\] and \[2, 4\]"),
        (jnp.ones((1, 5)), jnp.zeros(1, int), ValueError, "T ≥ 2"),
        (jnp.ones(5), jnp.array(1), ValueError, "T ≥ 2"),
        (jnp.ones((2, 4, 5), int), TOKENS, TypeError, "logits must be a floating array"),
        (jnp.ones((2, 4, 5)), TOKENS.astype(float), TypeError, "tokens must be an integer array"),
    ],
)
def test_bad_input(logits, tokens, error_type, message):
    with pytest.raises(error_type, match=message):
        next_token_loss(logits, tokens)
