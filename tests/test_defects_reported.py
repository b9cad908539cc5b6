"""Public reports against released attentions, each tried on ours; ids name the project and issue.

Reports about kernels, memory and cost are tested beside the implementation that they concern.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxattn
from jaxattn.masks import Causal, Dense, Segments, SlidingWindow
from tests import calls, jaxprs, oracle
from tests.features import combined
from tests.tolerances import assert_close, error


def report(name):
    """Put the report's name into the test's id."""
    return pytest.mark.parametrize("report", [name])


def seldom(*rows):
    """Rows of arguments like others that are tried in every run; these with `-m slow`."""
    return [pytest.param(*row, marks=pytest.mark.slow) for row in rows]


INTERACTING = ("softcap", "score_mod", "bias", "sink", "dropout", "window", "lengths")
PAIRS = [" + ".join(pair) for pair in itertools.combinations(INTERACTING, 2)]


@pytest.mark.slow
@report("jax 32300, 23349")
@pytest.mark.parametrize("names", PAIRS)
def test_every_option_beside_every_other(report, implementation, names):
    """An option that is ignored beside another; each alone is in test_attention.py."""
    case = combined(names.split(" + "))
    out = calls.attention(**case.operands, **case.options, implementation=implementation)
    want = oracle.attention(**case.operands, **case.oracle).out
    assert_close(out, want)


@report("jax 28974, 27184, 30593")
@pytest.mark.parametrize(
    "shape", [(1, 4, 5, 7), (2, 1, 1, 7), *seldom(((2, 4, 5, 7),), ((2, 1, 5, 7),))], ids=str
)
def test_bias_gradient_of_every_shape(report, implementation, shape):
    bias = np.random.default_rng(0).standard_normal(shape)
    calls.check(implementation, calls.heads() | {"bias": bias})


@report("jax 38495, 23401, 23701")
def test_jacobian_and_vmap_of_the_gradient(report, implementation):
    operands = calls.heads(batch=(), queries=2, keys=3, count=2, key_heads=2, size=48)
    operands["bias"] = np.random.default_rng(0).standard_normal((2, 2, 3))
    run = functools.partial(jaxattn.attention, implementation=implementation)

    def loss(operands):
        return jnp.sum(run(**operands) ** 2)

    jacobians = [calls.jit(jac(lambda x: run(**x)))(operands) for jac in (jax.jacrev, jax.jacfwd)]
    jax.tree.map(functools.partial(assert_close, dtype="float64"), *jacobians)
    batched = {name: np.stack([x, 2 * x, -x]) for name, x in operands.items()}
    together = calls.jit(jax.vmap(jax.grad(loss)))(batched)
    grad = calls.jit(jax.grad(loss))
    for i in range(3):
        alone = grad({name: x[i] for name, x in batched.items()})
        for name, x in alone.items():
            assert_close(together[name][i], x)


@report("jax 24047, 18595, 39878")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_every_product_accumulates_in_float32(report, implementation, dtype):
    def loss(*operands):
        out = jaxattn.attention(*operands, implementation=implementation)
        return jnp.sum(out.astype(jnp.float32))

    operands = [jnp.asarray(x, dtype) for x in calls.heads().values()]
    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        products = jaxprs.dots(jax.make_jaxpr(function)(*operands))
        found = [equation.outvars[0].aval.dtype for equation in products]
        assert found and set(found) == {jnp.dtype("float64" if dtype == "float64" else "float32")}


@report("jax 23819, 27224, 24491")
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(1, 7), (129, 257), *seldom((7, 100), (100, 127), (127, 129), (257, 1), (3, 4092))],
)
def test_lengths_that_are_no_multiples(report, implementation, queries, keys):
    operands = calls.heads(batch=(), queries=queries, keys=keys, count=1, key_heads=1)
    query, key, value = (x[:, 0] for x in operands.values())

    def loss(operands):
        return jnp.sum(jaxattn.attention(**operands, implementation=implementation) ** 2)

    scores = query @ key.T / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    out = weights @ value
    assert error(calls.jit(loss)(operands), (out**2).sum()) < 1e-12
    gradient = calls.jit(jax.grad(loss))(operands)
    assert_close(gradient["value"][:, 0], weights.T @ (2 * out))


@report("jax 26433, 30861")
@pytest.mark.parametrize("size", [1, 48, *seldom(*((size,) for size in (8, 80, 96, 192, 256)))])
def test_any_head_size(report, implementation, size):
    operands = calls.heads(batch=(), queries=3, keys=3, count=1, key_heads=1, size=size)
    out = calls.attention(**operands, implementation=implementation)
    assert_close(out, oracle.attention(**operands).out)


@report("jax 30964, 23300")
def test_sink_and_softcap_with_gradients(report, implementation):
    operands = calls.heads() | {"sink": np.linspace(-1, 1, 4), "softcap": np.array(1.5)}
    calls.check(implementation, operands)


@report("keras 23038")
def test_causal_whatever_else_is_asked_for(report, implementation):
    operands = calls.heads(queries=5, keys=5)
    dropout = {"dropout_rate": 0.5, "dropout_key": jax.random.key(0)}
    for options in ({}, dropout):
        out, weights = calls.attention_with_weights(**operands, **options, mask=Causal())
        assert (np.triu(weights, 1) == 0).all()
        same = calls.attention(**operands, **options, mask=Causal(), implementation=implementation)
        assert_close(same, out)
        shown = np.einsum("bnts,bsnh->btnh", weights, np.repeat(operands["value"], 2, axis=2))
        assert_close(out, shown)


@report("maxtext 4476")
def test_two_segments_alone_and_packed(report, implementation):
    operands = calls.heads(queries=7, keys=7)
    mask = Segments(jnp.array([0, 0, 0, 1, 1, 1, 1])) & Causal()
    packed = calls.attention(**operands, mask=mask, implementation=implementation)
    for part in (slice(0, 3), slice(3, 7)):
        alone = {name: x[:, part] for name, x in operands.items()}
        want = calls.attention(**alone, mask=Causal(), implementation=implementation)
        assert_close(packed[:, part], want)


@report("levanter 615, kfac-jax 244, folx 26")
def test_transpose_and_laplacian(report, implementation):
    operands = calls.heads(batch=(), queries=2, keys=2, count=1, key_heads=1, size=1, value_size=1)

    def run(operands):
        return jaxattn.attention(**operands, implementation=implementation)

    @calls.jit
    def adjoint(operands, direction, cotangent):
        out, linear = jax.linearize(run, operands)
        (back,) = jax.linear_transpose(linear, operands)(cotangent)
        return out, linear(direction), back

    out, tangent, back = adjoint(operands, calls.like(operands), np.ones((2, 1, 1)))
    assert_close(
        jnp.sum(tangent), sum(np.sum(back[n] * u) for n, u in calls.like(operands).items())
    )

    flat, unravel = ravel_pytree(operands)
    total = lambda x: jnp.sum(jnp.sin(run(unravel(x))))

    @calls.jit
    def laplacians(x):
        def second(u):
            return jax.jvp(lambda x: jax.jvp(total, (x,), (u,))[1], (x,), (u,))[1]

        return jnp.sum(jax.vmap(second)(jnp.eye(x.size))), jnp.trace(jax.hessian(total)(x))

    assert_close(*laplacians(flat))


@report("flash-attention 1672, MeanFlow 1, FastGen 13")
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_gradient_of_a_loss_that_contains_a_jvp(report, implementation, dtype):
    operands = {n: jnp.asarray(x, dtype) for n, x in calls.heads(queries=7, value_size=3).items()}
    direction = {n: jnp.asarray(x, dtype) for n, x in calls.like(operands).items()}

    def loss(operands):
        run = functools.partial(jaxattn.attention, implementation=implementation)
        out, tangent = jax.jvp(lambda x: run(**x), (operands,), (direction,))
        return jnp.mean((tangent - out).astype(jnp.float32) ** 2)

    got = calls.jit(jax.grad(loss))(operands)
    assert all(x.dtype == dtype and jnp.isfinite(x).all() for x in got.values())
    if dtype == "bfloat16":
        wide = {n: x.astype(jnp.float64) for n, x in operands.items()}
        direction = {n: x.astype(jnp.float64) for n, x in direction.items()}
        want = calls.jit(jax.grad(loss))(wide)
        for name, x in got.items():
            assert error(x, want[name]) < 0.02  # the loss rounds out and tangent to 8 bits


@report("TransformerEngine 2685")
def test_vmap_over_segment_ids(report, implementation):
    operands = calls.heads(batch=(3,), queries=6, keys=6)
    ids = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]])

    def one(operands, ids):
        out = jaxattn.attention(**operands, mask=Segments(ids), implementation=implementation)
        return jnp.sum(out**2), out

    run = calls.jit(jax.vmap(jax.value_and_grad(one, has_aux=True)))
    (_, out), gradient = run(operands, jnp.asarray(ids))
    allowed = (ids[:, :, None] == ids[:, None, :])[:, None]
    assert_close(out, oracle.attention(**operands, mask=allowed).out)
    assert all(jnp.isfinite(x).all() for x in gradient.values())


@report("tpu-inference 2755")
@pytest.mark.parametrize("start", [40_000, *seldom((2**15 - 2,), (2**31 - 6,))])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(2, 0)], ids=["causal", "window"])
def test_positions_do_not_wrap(report, implementation, start, mask):
    operands = calls.heads(batch=(), queries=5, keys=5)
    places = jnp.arange(5, dtype=jnp.int32) + start
    out = calls.attention(
        **operands,
        mask=mask,
        query_positions=places,
        key_positions=places,
        implementation=implementation,
    )
    assert_close(out, calls.attention(**operands, mask=mask, implementation=implementation))


@report("tpu-inference 2103, PR 1954")
@pytest.mark.parametrize("offset", [1, *seldom((0,), (4,))])
def test_windows_with_an_offset(report, implementation, offset):
    operands = calls.heads(queries=3, keys=7)
    rows = np.arange(3) + offset
    options = {"mask": SlidingWindow(1, 0), "query_positions": rows}
    told = {"mask": lambda i, j: i - 1 <= j <= i, "query_positions": rows}
    calls.check(implementation, operands, options, told)


@report("torch 136232, 158212, 141126")
def test_tables_larger_than_the_sequence_and_empty_regions(report, implementation):
    table = np.random.default_rng(0).random((50, 60)) < 0.5
    table[0:3] = False
    operands = calls.heads()
    calls.check(implementation, operands, {"mask": Dense(table)}, {"mask": table[:5, :7]})


@report("torch 153799")
def test_score_function_at_a_ragged_length(report, implementation):
    operands = calls.heads(batch=(), queries=257, keys=257, count=1, key_heads=1, value_size=2)

    def relative(scores, query_positions, key_positions):
        return scores + (query_positions - key_positions).astype(scores.dtype)

    def loss(operands):
        out = jaxattn.attention(
            **operands, score_mod=relative, mask=Causal(), implementation=implementation
        )
        return jnp.sum(out**2), out

    (_, out), got = calls.jit(jax.value_and_grad(loss, has_aux=True))(operands)
    assert all(jnp.isfinite(x).all() for x in got.values())
    allowed, places = np.tri(257, dtype=bool), np.arange(257.0)
    told = {"mask": allowed, "bias": places[:, None] - places}
    assert_close(out, oracle.attention(**operands, **told).out)


@report("torch 186775")
def test_traced_document_ids_jitted_once(report, implementation):
    operands = calls.heads(batch=(), queries=5, keys=5)
    traces = []

    @calls.jit
    def run(operands, ids):
        traces.append(1)
        return jaxattn.attention(**operands, mask=Segments(ids), implementation=implementation)

    for ids in ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1]):
        want = oracle.attention(**operands, mask=lambda i, j: ids[i] == ids[j]).out  # noqa: B023
        assert_close(run(operands, jnp.array(ids)), want)
    assert len(traces) == 1


@report("torch 145208, 157677")
def test_learned_table_of_relative_positions(report, implementation):
    """A bias made from positions and a table of 2·7 - 1 numbers a head gets its gradient."""
    operands = calls.heads(queries=7, keys=7)
    table = np.random.default_rng(0).standard_normal((4, 13))
    distance = np.arange(7)[:, None] - np.arange(7) + 6

    def look_up(table, query_positions, key_positions):
        distance = (query_positions - key_positions)[..., 0, :, :]  # the axis of heads is 1
        return jnp.moveaxis(table.T[distance + 6], -1, -3)

    def loss(table):
        bias = jax.tree_util.Partial(look_up, table)
        out = jaxattn.attention(**operands, bias=bias, implementation=implementation)
        return jnp.sum(out**2)

    def moved(step):
        bias = (table + step * direction)[:, distance][None]
        return (oracle.attention(**operands, bias=bias).out ** 2).sum()

    direction = np.random.default_rng(1).standard_normal(table.shape)
    value, gradient = calls.jit(jax.value_and_grad(loss))(table)
    assert error(value, moved(0)) < 1e-12
    assert error(np.sum(gradient * direction), calls.derivative(moved)) < calls.STENCIL


@report("torch 141784")
def test_dropout_beside_a_score_function(report, implementation):
    case = combined(["dropout", "score_mod"])
    calls.check(implementation, case.operands, case.options, case.oracle)


@report("attention-gym 60, 109; gpt-fast 233")
def test_slots_never_written_are_never_read(report, implementation):
    """Step by step into a cache of garbage equals full, with -1 for the empty slots."""
    operands = calls.heads(queries=5, keys=5)
    full = calls.attention(**operands, mask=Causal(), implementation=implementation)
    for i in range(5):
        filled = np.arange(8) <= i
        cache = {
            name: np.where(filled[:, None, None], pad(operands[name]), np.nan)
            for name in ("key", "value")
        }
        out = calls.attention(
            operands["query"][:, i : i + 1],
            **cache,
            mask=Causal(),
            query_positions=jnp.array([i]),
            key_positions=jnp.where(filled, jnp.arange(8), -1),
            implementation=implementation,
        )
        assert_close(out[:, 0], full[:, i])


def pad(x):
    """`[B, 5, K, H]` in a cache of 8."""
    return np.pad(x, [(0, 0), (0, 3), (0, 0), (0, 0)])
