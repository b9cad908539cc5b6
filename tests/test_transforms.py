"""Any transform, any nesting: the same numbers as without, on every implementation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import jaxattn
from jaxattn.masks import Causal, SlidingWindow
from tests import calls, oracle
from tests.tolerances import GRADIENT, assert_close

SIZES = {"queries": 4, "keys": 4, "count": 2, "key_heads": 1, "size": 2, "value_size": 2}


@pytest.fixture
def operands():
    return jax.tree.map(jnp.asarray, calls.heads(**SIZES))


@pytest.fixture
def run(implementation):
    """`operands -> out`, causal."""
    return lambda operands: jaxattn.attention(
        **operands, mask=Causal(), implementation=implementation
    )


def inner(left, right):
    return sum(map(jnp.vdot, jax.tree.leaves(left), jax.tree.leaves(right)))


def out_of(operands):
    return oracle.attention(**operands, mask=lambda i, j: j <= i).out


def wanted_tangent(operands, direction):
    """The derivative of the oracle along a direction, every number of it."""
    moved = lambda t: out_of({name: operands[name] + t * direction[name] for name in operands})
    return calls.derivative(moved)


def assert_near(got, want):
    """Against a stencil."""
    np.testing.assert_allclose(got, want, rtol=calls.STENCIL, atol=calls.STENCIL)


def test_jit(run, operands):
    assert_close(calls.jit(run)(operands), out_of(operands))


def test_jvp_and_linearize(run, operands):
    direction = calls.like(operands)

    @calls.jit
    def both(operands, direction):
        out, tangent = jax.jvp(run, (operands,), (direction,))
        same, linear = jax.linearize(run, operands)
        return out, same, tangent, linear(direction)

    out, same, tangent, linear = both(operands, direction)
    assert_close(out, out_of(operands))
    assert_close(same, out)
    assert_near(tangent, wanted_tangent(operands, direction))
    assert_close(linear, tangent, GRADIENT)


def test_jvp_in_one_argument(run, operands):
    """The others have symbolic zeros for tangents."""
    for name in operands:
        alone = lambda x: run(operands | {name: x})
        direction = calls.like(operands)
        tangent = calls.jit(lambda x, u: jax.jvp(alone, (x,), (u,))[1])(
            operands[name], direction[name]
        )
        zero = {other: 0 * direction[other] for other in operands}
        assert_near(tangent, wanted_tangent(operands, zero | {name: direction[name]}))


def test_vjp_is_the_adjoint_of_jvp(run, operands):
    direction, cotangent = calls.like(operands), np.random.default_rng(3).random((2, 4, 2, 2))

    @calls.jit
    def three(operands, direction, cotangent):
        _, tangent = jax.jvp(run, (operands,), (direction,))
        _, pullback = jax.vjp(run, operands)
        _, linear = jax.linearize(run, operands)
        (transposed,) = jax.linear_transpose(linear, operands)(cotangent)
        return tangent, pullback(cotangent)[0], transposed

    tangent, gradient, transposed = three(operands, direction, cotangent)
    assert_close(inner(gradient, direction), inner(tangent, cotangent), GRADIENT)
    for name, x in gradient.items():
        assert_close(transposed[name], x, GRADIENT)


def test_hessian_four_ways(run, operands):
    loss = lambda query: jnp.sum(jnp.sin(run(operands | {"query": query})))
    ways = [(a, b) for a in (jax.jacfwd, jax.jacrev) for b in (jax.jacfwd, jax.jacrev)]
    hessians = calls.jit(lambda query: [a(b(loss))(query) for a, b in ways])(operands["query"])
    for hessian in hessians[1:]:
        assert_close(hessian, hessians[0], GRADIENT)
    square = np.reshape(hessians[0], (32, 32))
    assert_close(square, square.T, GRADIENT)
    assert np.abs(square).max() > 1e-3


def test_scan_and_its_gradient(run, operands):
    """Three layers of query -> out, by scan and by hand."""

    def by_scan(operands):
        layer = lambda query, _: (run(operands | {"query": query}), None)
        return jnp.sum(jax.lax.scan(layer, operands["query"], length=3)[0] ** 2)

    def by_hand(operands):
        query = operands["query"]
        for _ in range(3):
            query = run(operands | {"query": query})
        return jnp.sum(query**2)

    assert_same_gradients(by_scan, by_hand, operands)


LOOPS = {
    "scan": lambda f, x: jax.lax.scan(lambda c, _: (f(c), None), x, length=2)[0],
    "fori_loop": lambda f, x: jax.lax.fori_loop(0, 2, lambda _, c: f(c), x),
    "map": lambda f, x: jax.lax.map(f, jnp.stack([x, 2 * x])),
}
UNROLLED = {
    "scan": lambda f, x: f(f(x)),
    "fori_loop": lambda f, x: f(f(x)),
    "map": lambda f, x: jnp.stack([f(x), f(2 * x)]),
}


@pytest.mark.parametrize(
    "loop", ["scan", *(pytest.param(m, marks=pytest.mark.slow) for m in ("fori_loop", "map"))]
)
def test_second_order_in_a_loop(run, operands, loop):
    """Forward over reverse, reverse over reverse and reverse over forward, as without the loop."""
    direction = jax.tree.map(jnp.cos, operands)

    def second_orders(around):
        def loss(operands):
            return jnp.sum(around(lambda x: run(operands | {"query": x}), operands["query"]) ** 2)

        gradient = jax.grad(loss)
        slope = lambda x: jax.jvp(loss, (x,), (direction,))[1]
        return [
            jax.jit(lambda x: jax.jvp(gradient, (x,), (direction,))[1])(operands),
            jax.jit(jax.grad(lambda x: inner(gradient(x), direction)))(operands),
            jax.jit(jax.grad(slope))(operands),
        ]

    got, want = second_orders(LOOPS[loop]), second_orders(UNROLLED[loop])
    jax.tree.map(lambda x, y: assert_close(x, y, GRADIENT), got, want)


def test_cond_and_its_gradient(run, operands):
    def by_cond(operands):
        positive = operands["query"][0, 0, 0, 0] > -1e9
        return jnp.sum(jax.lax.cond(positive, run, lambda x: x["query"], operands) ** 2)

    assert_same_gradients(by_cond, lambda x: jnp.sum(run(x) ** 2), operands)


def test_remat(run, operands):
    loss = lambda function: lambda x: jnp.sum(function(function_input(x, function)) ** 2)
    function_input = lambda x, function: x | {"query": function(x)}
    assert_same_gradients(loss(jax.checkpoint(run)), loss(run), operands)


def assert_same_gradients(left, right, operands):
    both = calls.jit(lambda x: [jax.value_and_grad(f)(x) for f in (left, right)])
    (value, gradient), (same, same_gradient) = both(operands)
    assert_close(value, same)
    for name in gradient:
        assert_close(gradient[name], same_gradient[name], GRADIENT)


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_vmap_over_one_argument(run, operands, name):
    batched = jnp.stack([operands[name], 2 * operands[name], -operands[name]])
    each = calls.jit(jax.vmap(lambda x: run(operands | {name: x})))(batched)
    for i in range(3):
        assert_close(each[i], out_of(operands | {name: batched[i]}))


def test_vmap_of_gradient_and_of_second_order(run, operands):
    loss = lambda x: jnp.sum(jnp.sin(run(x)))
    product = lambda x, u: (jax.grad(loss)(x), jax.jvp(jax.grad(loss), (x,), (u,))[1])
    batched = jax.tree.map(lambda x: jnp.stack([x, x / 2]), operands)
    together = calls.jit(jax.vmap(product))(batched, batched)
    alone = calls.jit(product)
    for i in range(2):
        one = jax.tree.map(lambda x: x[i], batched)
        jax.tree.map(lambda a, b: assert_close(a[i], b, GRADIENT), together, alone(one, one))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_shard_map_over_batch_and_heads(run, kind):
    operands = jax.tree.map(jnp.asarray, calls.heads(**(SIZES | {"count": 4, "key_heads": 2})))
    mesh = jax.make_mesh((2, 2), ("data", "heads"), axis_types=(kind, kind))
    spec = PartitionSpec("data", None, "heads")
    with jax.set_mesh(mesh):
        local = jax.shard_map(run, in_specs=spec, out_specs=spec)
        loss = lambda x: jnp.sum(local(x) ** 2)
        placed = jax.device_put(operands, jax.NamedSharding(mesh, spec))
        out, gradient = jax.jit(local)(placed), jax.jit(jax.grad(loss))(placed)
    assert_close(np.asarray(out), out_of(operands))
    want = calls.jit(jax.grad(lambda x: jnp.sum(run(x) ** 2)))(operands)
    for name in gradient:
        assert_close(np.asarray(gradient[name]), want[name], GRADIENT)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_shard_map_of_keys_is_a_merge(implementation, operands, kind):
    """Replicated queries, sharded keys: the parts of the devices merge into the whole."""
    mesh = jax.make_mesh((2,), ("tokens",), axis_types=(kind,))
    keys = PartitionSpec(None, "tokens")
    specs = {"query": PartitionSpec(), "key": keys, "value": keys}

    def local(operands):
        part = jaxattn.partial_attention(**operands, implementation=implementation)
        parts = jax.lax.all_gather(part, "tokens")
        left, right = (jax.tree.map(lambda x: x[i], parts) for i in range(2))
        return jaxattn.merge(left, right).out[None]

    with jax.set_mesh(mesh):
        whole = jax.shard_map(local, in_specs=(specs,), out_specs=PartitionSpec("tokens"))
        placed = {
            n: jax.device_put(x, jax.NamedSharding(mesh, specs[n])) for n, x in operands.items()
        }
        out = jax.jit(whole)(placed)
        gradient = jax.jit(jax.grad(lambda x: jnp.sum(whole(x) ** 2) / 2))(placed)
    assert_close(np.asarray(out)[0], oracle.attention(**operands).out)

    def alone(operands):
        return jnp.sum(jaxattn.attention(**operands, implementation=implementation) ** 2)

    want = calls.jit(jax.grad(alone))(operands)
    for name in gradient:
        assert_close(np.asarray(gradient[name]), want[name], GRADIENT)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_jit_on_a_mesh(run, operands, kind):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(kind,))
    placed = jax.device_put(operands, jax.NamedSharding(mesh, PartitionSpec("data")))
    with jax.set_mesh(mesh):
        out, gradient = jax.jit(jax.value_and_grad(lambda x: jnp.sum(run(x) ** 2)))(placed)
    assert_close(np.asarray(out), (out_of(operands) ** 2).sum())
    assert all(np.isfinite(x).all() for x in gradient.values())


def test_export_with_symbolic_batch_and_lengths(implementation):
    """Exported once, called at several sizes, and differentiated afterwards (by vjp)."""
    batch, queries, keys = jax.export.symbolic_shape("b, t, s")

    def run(query, key, value):
        mask = Causal("end") & SlidingWindow(2, 0, "end")
        return jaxattn.attention(query, key, value, mask=mask, implementation=implementation)

    shape = lambda tokens, heads: jax.ShapeDtypeStruct((batch, tokens, heads, 2), jnp.float64)
    exported = jax.export.export(jax.jit(run))(shape(queries, 2), shape(keys, 1), shape(keys, 1))
    for sizes in ({"batch": (1,), "queries": 3, "keys": 4}, {"queries": 5, "keys": 5}):
        operands = [jnp.asarray(x) for x in calls.heads(**(SIZES | sizes)).values()]
        assert_close(exported.call(*operands), calls.jit(run)(*operands))
        loss = lambda function: lambda *x: jnp.sum(function(*x) ** 2)
        got, want = (jax.grad(loss(f), (0, 1, 2))(*operands) for f in (exported.call, run))
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, GRADIENT)


def test_export_with_symbolic_batch_alone(run, operands):
    """Lengths are known, and so are tiles; how many examples there are is not."""
    (batch,) = jax.export.symbolic_shape("b")
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype), operands)
    exported = jax.export.export(jax.jit(run))(shapes)
    for count in (1, 3):
        more = jax.tree.map(lambda x, n=count: jnp.concatenate([x[:1]] * n), operands)
        assert_close(exported.call(more), run(more))


def test_jet_on_the_definition(operands):
    """Taylor's first three terms, from `jet` and from nested jvp."""
    jet = pytest.importorskip("jax.experimental.jet").jet
    run = lambda query: jaxattn.attention(
        **(operands | {"query": query}), mask=Causal(), implementation="dense"
    )
    query, direction = operands["query"], jnp.asarray(calls.like(operands)["query"])
    first = lambda x: jax.jvp(run, (x,), (direction,))[1]
    second = lambda x: jax.jvp(first, (x,), (direction,))[1]
    third = lambda x: jax.jvp(second, (x,), (direction,))[1]

    @calls.jit
    def both(query):
        zero = jnp.zeros_like(direction)
        value, terms = jet(run, (query,), ((direction, zero, zero),))
        return [value, *terms], [f(query) for f in (run, first, second, third)]

    terms, wanted = both(query)
    for got, want in zip(terms, wanted, strict=True):
        assert_close(got, want, GRADIENT)


def test_under_other_transforms_nothing_leaks(run, operands):
    with jax.checking_leaks():
        jax.make_jaxpr(jax.grad(lambda x: jnp.sum(run(x))))(operands)


def test_partial_of_both_results(implementation, operands):
    """lse has a tangent of its own, whatever out's is."""
    part = functools.partial(jaxattn.partial_attention, implementation=implementation)
    direction = calls.like(operands)
    tangent = calls.jit(lambda x, u: jax.jvp(lambda x: part(**x).lse, (x,), (u,))[1])(
        operands, direction
    )
    moved = lambda t: (
        oracle.attention(**{name: operands[name] + t * direction[name] for name in operands}).lse
    )
    assert_near(tangent, calls.derivative(moved))
