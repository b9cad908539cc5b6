"""Numbers that a reader can check with pen and paper, or against the usual first example."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from tests import jaxprs
from tests.tolerances import assert_close, error

HELLO = pathlib.Path(__file__).parent / "data" / "torch_hello.json"


def example():
    """Query [1, 1, 1], keys and values [2, 1, 1], float64."""
    return jnp.array([[[2.0]]]), jnp.array([[[2.0]], [[1.0]]]), jnp.array([[[10.0]], [[4.0]]])


FIRST = 1 / (1 + np.exp(-2))  # scores 4 and 2, so e^4 / (e^4 + e^2)


def test_one_query_two_keys_weights():
    _, weights = jaxattn.attention_with_weights(*example())
    assert_close(weights[0, 0], [FIRST, 1 - FIRST])
    assert [round(float(w), 3) for w in weights[0, 0]] == [0.881, 0.119]


def test_one_query_two_keys_out(implementation):
    out = jaxattn.attention(*example(), implementation=implementation)
    assert_close(out, [[[10 * FIRST + 4 * (1 - FIRST)]]])
    assert round(float(out[0, 0, 0]), 4) == 9.2848


def test_one_query_two_keys_logsumexp(implementation):
    partial = jaxattn.partial_attention(*example(), implementation=implementation)
    assert_close(partial.lse, [[np.log(np.exp(4) + np.exp(2))]])


def test_one_query_two_keys_step_by_step():
    query, key, value = (x[:, 0] for x in example())
    scores = jaxattn.attention_scores(query, key)
    np.testing.assert_array_equal(scores, [[4.0, 2.0]])
    weights = jaxattn.attention_weights(scores)
    assert_close(jaxattn.weighted_sum(weights, value), [[10 * FIRST + 4 * (1 - FIRST)]])


@pytest.mark.parametrize("mask", [None, jaxattn.masks.Causal()], ids=["full", "causal"])
def test_from_x_to_c_in_five_products_and_one_transpose(mask):
    x, weight = jnp.ones((5, 4)), jnp.ones((4, 3))
    jaxpr = jax.make_jaxpr(lambda *a: jaxattn.self_attention(*a, mask=mask))(x, *[weight] * 3)
    assert jaxprs.count(jaxpr, "dot_general") == 5  # X W_q, X W_k, X W_v, Q Kᵀ, A V
    assert jaxprs.count(jaxpr, "transpose") == 1  # Kᵀ


def test_self_attention_is_the_equation():
    x, w_query, w_key, w_value = random_matrices((7, 4), (4, 3), (4, 3), (4, 2))
    query, key, value = x @ w_query, x @ w_key, x @ w_value
    scores = query @ key.T / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert_close(jaxattn.self_attention(x, w_query, w_key, w_value), weights @ value)


def random_matrices(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in shapes]


def hello():
    """`torch.manual_seed(0); q, k, v = torch.randn(3, 4, 8)`: three matrices [4, 8], float32."""
    stored = json.loads(HELLO.read_text())
    arrays = {name: np.array(stored[name], np.float32) for name in ("query", "key", "value")}
    return arrays, np.array(stored["out"])


def test_torch_hello_has_96_numbers():
    arrays, _ = hello()
    assert [x.shape for x in arrays.values()] == [(4, 8)] * 3
    assert round(float(arrays["query"][0, 0]), 4) == -1.1258  # torch's first normal of seed 0


def test_torch_hello_weights():
    arrays, _ = hello()
    query, key, value = (x[:, None] for x in arrays.values())
    _, weights = jaxattn.attention_with_weights(query, key, value)
    assert [round(float(w), 3) for w in weights[0, 0]] == [0.121, 0.741, 0.106, 0.032]


def test_torch_hello_out(implementation):
    arrays, out = hello()
    query, key, value = (x[:, None] for x in arrays.values())
    got = jaxattn.attention(query, key, value, implementation=implementation)
    assert error(got[:, 0], out) < 1e-6  # torch's own answer, in float32
