"""KVCache: what was appended is there, in its place, and step by step equals all at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxattn
from jaxattn import cache as caches
from jaxattn.biases import ALiBi, alibi_slopes
from jaxattn.masks import Causal, Lengths, Prefix, Segments, SlidingWindow
from jaxattn.positions import rotary
from tests import calls
from tests.tolerances import error


def tokens(steps, batch=(2,), size=3, value_size=2, count=2, seed=0):
    """Random keys and values of `steps` tokens."""
    rng = np.random.default_rng(seed)
    return (
        jnp.asarray(rng.standard_normal((*batch, steps, count, width)))
        for width in (size, value_size)
    )


@functools.partial(calls.jit, static_argnames=("capacity", "wraps", "chunk"))
def in_chunks(key, value, valid, capacity, wraps, chunk):
    """The cache after chunks of tokens, one loop."""
    batch = key.shape[:-3]
    shape = dict(dtype=key.dtype, wraps=wraps)
    empty = caches.init(batch, capacity, key.shape[-2], key.shape[-1], value.shape[-1], **shape)

    def step(cache, new):
        return caches.append(cache, *new), None

    axis = len(batch)
    chunks = (
        jnp.moveaxis(x.reshape(*batch, -1, chunk, *x.shape[axis + 1 :]), axis, 0)
        for x in (key, value, valid)
    )
    return jax.lax.scan(step, empty, tuple(chunks))[0]


def listed(key, value, valid, capacity, wraps):
    """The same in Python: slots of (position, key, value) for one example."""
    slots, position = [None] * capacity, 0
    for k, v, counts in zip(key, value, valid, strict=True):
        if counts:
            slots[position % capacity if wraps else position] = (position, k, v)
            position += 1
    return slots, position


@pytest.mark.parametrize(("wraps", "capacity"), [(False, 12), (True, 5), (True, 2)])
def test_holds_what_was_appended(wraps, capacity):
    key, value = tokens(12)
    valid = np.random.default_rng(1).random((2, 12)) < 0.7
    valid[0, :3], valid[1, -3:] = False, False  # padding at the left, and at the right
    cache = in_chunks(key, value, valid, capacity, wraps, chunk=3)
    for b in range(2):
        slots, length = listed(key[b], value[b], valid[b], capacity, wraps)
        assert cache.length[b] == length
        for place, slot in enumerate(slots):
            if slot is None:
                assert cache.positions[b, place] == -1
            else:
                assert cache.positions[b, place] == slot[0]
                np.testing.assert_array_equal(cache.key[b, place], slot[1])
                np.testing.assert_array_equal(cache.value[b, place], slot[2])


MASKS = {
    "causal": (Causal(), None),
    "window": (SlidingWindow(2, 0), None),
    "window of one": (SlidingWindow(0, 0), None),
    "prefix": (Causal() | Prefix(jnp.array([3, 2])), None),
    "segments": (Causal() & Segments(jnp.array([[0, 0, 1, 1, 1, 0], [2, 2, 2, 3, 3, 2]])), None),
    "lengths": (Causal() & Lengths(key=jnp.array([5, 3])), None),
    "alibi": (Causal(), ALiBi(alibi_slopes(4))),
}


@functools.partial(calls.jit, static_argnames=("capacity", "wraps", "sizes"))
def stepwise(query, key, value, valid, options, capacity, wraps, sizes):
    """Attention in chunks of these sizes through a cache, with rotary positions."""
    shape = dict(dtype=key.dtype, wraps=wraps)
    cache = caches.init(key.shape[0], capacity, *key.shape[-2:], value.shape[-1], **shape)
    outs, start = [], 0
    for size in sizes:
        part = slice(start, start + size)
        places = caches.next_positions(cache, size, valid[:, part])
        turned = rotary(key[:, part], places)
        held, cache = caches.append_and_read(cache, turned, value[:, part], valid[:, part])
        outs.append(
            jaxattn.attention(
                rotary(query[:, part], places),
                held.key,
                held.value,
                query_positions=places,
                key_positions=held.positions,
                **options,
            )
        )
        start += size
    return jnp.concatenate(outs, axis=1)


def whole(operands, valid, options):
    """Each example by itself and without padding, all at once."""
    query, key, value = operands
    outs = np.zeros((*query.shape[:-1], value.shape[-1]))
    for b in range(len(query)):
        kept = np.flatnonzero(valid[b])
        places = jnp.arange(len(kept))
        mask = options["mask"].example(jnp.int32(b), (2,))
        outs[b, kept] = calls.attention(
            rotary(query[b, kept], places),
            rotary(key[b, kept], places),
            value[b, kept],
            **options | {"mask": mask},
        )
    return outs


SLOW = {"window", "window of one", "segments", "lengths"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MASKS],
)
def test_step_by_step_is_all_at_once(name):
    """Two examples of 6 and 4 tokens, one padded at the left; 3 tokens, then 1, 1, 1."""
    mask, bias = MASKS[name]
    operands = [jnp.asarray(x) for x in calls.heads(queries=6, keys=6, size=4).values()]
    valid = np.array([[True] * 6, [False, False, True, True, True, True]])
    if name == "prefix":  # is seen whole only where it arrives whole
        valid[1] = [True] * 4 + [False] * 2
    options = {"mask": mask, "bias": bias}
    got = stepwise(*operands, valid, options, capacity=6, wraps=False, sizes=(3, 1, 1, 1))
    assert error(got, whole(operands, valid, options)) <= 1e-12


@pytest.mark.parametrize("sizes", [pytest.param((1,) * 8, marks=pytest.mark.slow), (5, 1, 2)])
def test_a_ring_of_the_windows_size_is_enough(sizes):
    operands = [jnp.asarray(x) for x in calls.heads(queries=8, keys=8, size=4).values()]
    valid = np.array([[True] * 8, [False, True, False] + [True] * 5])
    options = {"mask": SlidingWindow(2, 0), "bias": None}
    got = stepwise(*operands, valid, options, capacity=3, wraps=True, sizes=sizes)
    assert error(got, whole(operands, valid, options)) <= 1e-12


def test_no_room_is_an_error_where_it_can_be_known():
    key, value = tokens(3)
    cache = caches.init(2, 4, 2, 3, 2, dtype=key.dtype)
    cache = caches.append(cache, key, value, np.arange(3) < np.array([[3], [1]]))
    with pytest.raises(ValueError, match="holds C = 4 tokens.* example has 6.*wraps=True"):
        caches.append(cache, key, value)
    with pytest.raises(ValueError, match="holds C = 2 tokens.* example has 3"):
        jax.eval_shape(
            lambda: caches.append(caches.init(2, 2, 2, 3, 2, dtype=key.dtype), key, value)
        )
    kept = caches.append(cache, key, value, np.arange(3) < np.array([[1], [3]]))
    np.testing.assert_array_equal(kept.length, [4, 4])


def test_no_room_gives_nan_where_it_cannot_be_known():
    key, value = tokens(6)
    valid = np.arange(6) < np.array([[6], [4]])
    cache = in_chunks(key, value, valid, capacity=4, wraps=False, chunk=2)
    np.testing.assert_array_equal(cache.length, [6, 4])
    query = jnp.ones((2, 2, 2, 3))
    places = jnp.array([[4, 5], [2, 3]])
    options = dict(mask=Causal(), query_positions=places, key_positions=cache.positions)
    out = calls.attention(query, cache.key, cache.value, **options)
    assert jnp.isnan(out[0]).all() and jnp.isfinite(out[1]).all()
    spoiled = caches.or_nan(query, cache, places)
    assert jnp.isnan(spoiled[0]).all() and (spoiled[1] == 1).all()


def test_vmap_is_the_batch_axis():
    key, value = tokens(4)
    valid = jnp.array([[True, False, True, True], [True, True, False, False]])
    one = functools.partial(in_chunks, capacity=4, wraps=False, chunk=2)
    batched, mapped = one(key, value, valid), jax.vmap(one)(key, value, valid)
    jax.tree.map(np.testing.assert_array_equal, batched, mapped)
    two = one(key[None], value[None], valid[None])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[0]), batched, two)


def test_stays_sharded():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    key, value = tokens(4, batch=(4,))
    place = NamedSharding(mesh, PartitionSpec("data"))
    spread = [jax.device_put(x, place) for x in (key, value, jnp.ones((4, 4), bool))]
    options = dict(capacity=6, wraps=True, chunk=2)
    got, want = (
        in_chunks(*spread, **options),
        in_chunks(key, value, jnp.ones((4, 4), bool), **options),
    )
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert got.key.sharding.is_equivalent_to(place, got.key.ndim)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtype_is_the_one_asked_for(dtype):
    key, value = (x.astype(dtype) for x in tokens(2))
    cache = caches.append(caches.init(2, 2, 2, 3, 2, dtype=dtype), key, value)
    assert cache.key.dtype == cache.value.dtype == dtype
    with pytest.raises(TypeError, match=f"cache's dtype {dtype}, got float64"):
        caches.append(cache, *tokens(2))


def test_context_is_all_there():
    key, value = tokens(3)
    cache = caches.from_context(key, value, jnp.array([[True, True, False], [True, True, True]]))
    np.testing.assert_array_equal(cache.positions, [[0, 1, -1], [0, 1, 2]])
    assert cache.capacity == 3 and cache.key is key


@pytest.mark.parametrize(
    ("changes", "error_type", "message"),
    [
        (
            dict(key=(1, 2, 2, 3)),
            ValueError,
            r"key must be \[2, T, 2, 3\].*got shape \[1, 2, 2, 3\]",
        ),
        (dict(key=(2, 2, 1, 3)), ValueError, "these heads"),
        (dict(value=(2, 3, 2, 2)), ValueError, "must agree but for the last axis"),
        (dict(valid=np.ones((2, 2), int)), TypeError, "valid must be boolean.*lengths"),
        (dict(valid=np.ones((3,), bool)), ValueError, r"= \[2\] or \[2, 2\], got shape \[3\]"),
    ],
)
def test_bad_input(changes, error_type, message):
    given = dict(key=(2, 2, 2, 3), value=(2, 2, 2, 2)) | changes
    cache = caches.init(2, 4, 2, 3, 2, dtype=jnp.float64)
    arrays = [np.ones(given[name]) for name in ("key", "value")]
    with pytest.raises(error_type, match=message):
        jax.eval_shape(lambda: caches.append(cache, *arrays, given.get("valid")))


def test_bad_sizes():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        caches.init(2, 0, 1, 1)
    with pytest.raises(TypeError, match="head_size must be an integer"):
        caches.init(2, 1, 1, 1.5)
