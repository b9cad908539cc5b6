"""Bad input: each error names the argument, what was expected in letters, what came, what to do."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.masks import (
    And,
    Causal,
    Dense,
    Lengths,
    Predicate,
    Prefix,
    Segments,
    SlidingWindow,
)
from jaxattn.positions import rotary, sinusoidal

# In tests the shapes in annotations of some modules are checked; behind that is our own door.
merge, attention_weights, weighted_sum = map(
    inspect.unwrap, (jaxattn.merge, jaxattn.attention_weights, jaxattn.weighted_sum)
)


def zeros(*shape, dtype="float32"):
    return jnp.zeros(shape, dtype)


def attention(**changed):
    """A good call, B = 2, T = 5, S = 7, N = 4, K = 2, H = 3, Hv = 6, with something changed."""
    good = {"query": zeros(2, 5, 4, 3), "key": zeros(2, 7, 2, 3), "value": zeros(2, 7, 2, 6)}
    return jaxattn.attention(**(good | changed))


def masked(mask):
    return attention(mask=mask)


KEY = jax.random.key
TABLE = np.ones((5, 7), bool)

# name: (call, exception, what the message holds, in order)
BAD = {
    # query, key, value
    "query a list": (
        lambda: attention(query=[[1.0]]),
        TypeError,
        ["query must be an array [*B, T, N, H]", "list", "jnp.asarray(query)"],
    ),
    "integer query": (
        lambda: attention(query=zeros(2, 5, 4, 3, dtype="int32")),
        TypeError,
        ["query must be a floating array [*B, T, N, H]", "int32[2, 5, 4, 3]", "query.astype"],
    ),
    "complex value": (
        lambda: attention(value=zeros(2, 7, 2, 6, dtype="complex64")),
        TypeError,
        ["value must be a floating array [*B, S, K, Hv]", "complex64[2, 7, 2, 6]"],
    ),
    "rank of query": (
        lambda: attention(query=zeros(5, 3)),
        ValueError,
        ["query must be [*B, T, N, H] with at least 3 axes", "[5, 3]", "expand_dims"],
    ),
    "mixed dtypes": (
        lambda: attention(key=zeros(2, 7, 2, 3, dtype="bfloat16")),
        TypeError,
        ["query, key, value must share one dtype", "query float32, key bfloat16", "astype"],
    ),
    "batch axes": (
        lambda: attention(key=zeros(3, 7, 2, 3)),
        ValueError,
        ["must share their batch axes *B", "[3, 7, 2, 3]", "broadcast_to"],
    ),
    "rank of key": (
        lambda: attention(key=zeros(7, 2, 3)),
        ValueError,
        ["must share their batch axes *B", "[7, 2, 3]"],
    ),
    "S": (
        lambda: attention(value=zeros(2, 6, 2, 6)),
        ValueError,
        ["S must agree", "key has S = 7, value has S = 6"],
    ),
    "K": (
        lambda: attention(value=zeros(2, 7, 1, 6)),
        ValueError,
        ["K must agree", "key has K = 2, value has K = 1", "tokens before heads"],
    ),
    "H": (
        lambda: attention(key=zeros(2, 7, 2, 4)),
        ValueError,
        ["H must agree", "query has H = 3, key has H = 4", "Hv"],
    ),
    "heads that do not divide": (
        lambda: attention(query=zeros(2, 5, 3, 3)),
        ValueError,
        ["N = 3", "multiple of K = 2", "[2, 5, 3, 3]", "swapaxes"],
    ),
    "no key heads": (
        lambda: attention(key=zeros(2, 7, 0, 3), value=zeros(2, 7, 0, 6)),
        ValueError,
        ["N = 4", "multiple of K = 0"],
    ),
    # mask and bias arrays
    "float mask": (
        lambda: masked(zeros(5, 7)),
        TypeError,
        ["mask must be boolean [T, S] or [*B, N, T, S]", "float32[5, 7]", "bias="],
    ),
    "integer mask": (
        lambda: masked(np.ones((5, 7), np.int32)),
        TypeError,
        ["mask must be boolean", "int32[5, 7]", "mask.astype(bool)"],
    ),
    "mask a list": (
        lambda: masked([[True]]),
        TypeError,
        ["mask must be an array [T, S] or [*B, N, T, S]", "list"],
    ),
    "mask of rank 3": (
        lambda: masked(np.ones((2, 5, 7), bool)),
        ValueError,
        ["mask must be [T, S] or [*B, N, T, S] with 4 axes", "[2, 5, 7]", "mask[:, None]"],
    ),
    "mask of the wrong shape": (
        lambda: masked(np.ones((5, 6), bool)),
        ValueError,
        [
            "mask must broadcast to [*B, N, T, S] = [2, 4, 5, 7]",
            "got shape [5, 6]",
            "[*B, 1, 1, S]",
        ],
    ),
    "bias of rank 3": (
        lambda: attention(bias=zeros(2, 5, 7)),
        ValueError,
        ["bias must be [T, S] or [*B, N, T, S] with 4 axes", "[2, 5, 7]", "bias[:, None]"],
    ),
    "bias of three heads": (
        lambda: attention(bias=zeros(2, 3, 5, 7)),
        ValueError,
        ["bias must broadcast to [*B, N, T, S]", "also K = 2", "[2, 3, 5, 7]"],
    ),
    "boolean bias": (
        lambda: attention(bias=TABLE),
        TypeError,
        ["bias must be a floating array", "bool[5, 7]"],
    ),
    "a mask as a bias": (
        lambda: attention(bias=Causal("start")),
        TypeError,
        ["bias got the mask Causal(align='start')", "mask="],
    ),
    "a bias function that tells who may": (
        lambda: attention(bias=lambda query, key: key <= query),
        TypeError,
        ["bias must give floating numbers", "bool", "mask="],
    ),
    # numbers
    "scale a string": (
        lambda: attention(scale="auto"),
        TypeError,
        ["scale must be a number or an array [N]", "str"],
    ),
    "scale of the wrong shape": (
        lambda: attention(scale=zeros(3)),
        ValueError,
        ["scale must be a scalar or [N] = [4]", "[3]", "score_mod"],
    ),
    "sink of the wrong shape": (
        lambda: attention(sink=zeros(2)),
        ValueError,
        ["sink must be a scalar or [N] = [4]", "[2]"],
    ),
    "softcap of zero": (
        lambda: attention(softcap=0.0),
        ValueError,
        ["softcap must be positive", "0.0", "None turns it off"],
    ),
    "softcap NaN": (
        lambda: attention(softcap=float("nan")),
        ValueError,
        ["softcap must be positive", "nan"],
    ),
    # score_mod
    "score_mod an array": (
        lambda: attention(score_mod=zeros(5, 7)),
        TypeError,
        ["score_mod must be a function (scores, query_positions, key_positions)", "bias="],
    ),
    "score_mod of another shape": (
        lambda: attention(score_mod=lambda s, q, k: s[..., :1]),
        ValueError,
        ["score_mod must return floating scores", "[*B, N, t, s]", "got float32", "[N, 1, 1]"],
    ),
    "score_mod a mask": (
        lambda: attention(score_mod=lambda s, q, k: s > 0),
        ValueError,
        ["score_mod must return floating scores", "got bool", "mask="],
    ),
    # dropout
    "negative rate": (
        lambda: attention(dropout_rate=-0.1, dropout_key=KEY(0)),
        ValueError,
        ["dropout_rate must be at least 0 and below 1", "-0.1"],
    ),
    "rate of one": (
        lambda: attention(dropout_rate=1.0, dropout_key=KEY(0)),
        ValueError,
        ["dropout_rate must be at least 0 and below 1", "1.0"],
    ),
    "rate NaN": (
        lambda: attention(dropout_rate=float("nan"), dropout_key=KEY(0)),
        ValueError,
        ["dropout_rate must be at least 0 and below 1", "nan"],
    ),
    "rate an array": (
        lambda: attention(dropout_rate=jnp.array(0.1), dropout_key=KEY(0)),
        TypeError,
        ["dropout_rate must be a Python number", "static"],
    ),
    "rate a string": (
        lambda: attention(dropout_rate="0.1", dropout_key=KEY(0)),
        TypeError,
        ["dropout_rate must be a Python number", "str"],
    ),
    "no key": (
        lambda: attention(dropout_rate=0.1),
        ValueError,
        ["dropout_rate = 0.1 needs dropout_key", "None", "jax.random.key(seed)"],
    ),
    "key a seed": (
        lambda: attention(dropout_rate=0.1, dropout_key=0),
        TypeError,
        ["dropout_key must be an array", "int"],
    ),
    "key of floats": (
        lambda: attention(dropout_rate=0.1, dropout_key=zeros(2)),
        TypeError,
        ["dropout_key must be a key of jax.random.key(seed)", "float32"],
    ),
    "keys of another number": (
        lambda: attention(dropout_rate=0.1, dropout_key=jax.random.split(KEY(0), 3)),
        ValueError,
        ["dropout_key must be one key or one per example, [*B] = [2]", "[3]"],
    ),
    # positions
    "float positions": (
        lambda: attention(query_positions=zeros(5)),
        TypeError,
        ["query_positions must be an integer array [T] or [*B, T]", "float32[5]", "astype"],
    ),
    "positions of another length": (
        lambda: attention(key_positions=np.arange(5)),
        ValueError,
        ["key_positions must be [S] or [*B, S] = [7] or [2, 7]", "[5]", "S = 7 tokens"],
    ),
    # masks
    "unaligned causal": (
        lambda: masked(Causal()),
        ValueError,
        ["Causal()", "T = 5", "S = 7", 'align="start"', 'align="end"', "query_positions"],
    ),
    "alignment and positions": (
        lambda: attention(mask=Causal("end"), query_positions=np.arange(5)),
        ValueError,
        ["Causal(align='end')", "says align", "leave align out"],
    ),
    "two alignments": (
        lambda: masked(Causal("end") & SlidingWindow(1, 1, "start")),
        ValueError,
        ["must share one alignment", "Causal(align='end')", "same align"],
    ),
    "align": (lambda: Causal("left"), ValueError, ["align must be", '"start", "end"', "'left'"]),
    "negative window": (
        lambda: SlidingWindow(-1, 0),
        ValueError,
        ["left must be at least 0", "-1", "Predicate"],
    ),
    "window of a float": (
        lambda: SlidingWindow(1, 0.5),
        TypeError,
        ["right must be an integer", "0.5", "float"],
    ),
    "float lengths": (
        lambda: masked(Lengths(key=zeros(2))),
        TypeError,
        ["Lengths.key must hold integers [*B]", "float32", "astype"],
    ),
    "lengths of another batch": (
        lambda: masked(Lengths(query=np.array([1, 2, 3]))),
        ValueError,
        ["Lengths.query must be [*B] with *B = [2]", "[3]"],
    ),
    "prefix of floats": (
        lambda: masked(Prefix(1.5)),
        TypeError,
        ["Prefix.length must hold integers [*B]", "float"],
    ),
    "float ids": (
        lambda: masked(Segments(zeros(5))),
        TypeError,
        ["Segments.query_ids must hold integers [*B, T]", "float32"],
    ),
    "ids that end early": (
        lambda: masked(Segments(np.zeros(4, np.int32), np.zeros(7, np.int32))),
        ValueError,
        ["Segments.query_ids [*B, T]", "4 entries", "5 positions", "one entry for each"],
    ),
    "ids of another batch": (
        lambda: masked(Segments(np.zeros((3, 7), np.int32))),
        ValueError,
        ["Segments.query_ids must be [*B, T] with *B = [2]", "[3, 7]"],
    ),
    "float table": (
        lambda: masked(Dense(np.ones((5, 7)))),
        TypeError,
        ["mask must be boolean [T, S] or [*B, N, T, S]", "float64[5, 7]"],
    ),
    "table of rank 1": (
        lambda: masked(Dense(np.ones(7, bool))),
        ValueError,
        ["Dense.array must be [T, S] or [*B, N, T, S]", "[7]"],
    ),
    "table of rank 3": (
        lambda: masked(Dense(np.ones((2, 5, 7), bool))),
        ValueError,
        ["Dense.array must be [T, S] or [*B, N, T, S]", "[2, 5, 7]"],
    ),
    "table of three heads": (
        lambda: masked(Dense(np.ones((2, 3, 5, 7), bool))),
        ValueError,
        ["mask must give [*B, N, t, s] = [2, 4, 5, 7]", "also K = 2", "[2, 3, 5, 7]"],
    ),
    "table that ends early": (
        lambda: masked(Dense(np.ones((5, 6), bool))),
        ValueError,
        ["Dense.array", "6 entries", "7 positions"],
    ),
    "predicate of numbers": (
        lambda: masked(Predicate(lambda q, k: q - k)),
        TypeError,
        ["Predicate's function must return booleans", "int32", "compare"],
    ),
    "composed with an array": (
        lambda: Causal() & TABLE,
        TypeError,
        ["composes with masks", "ndarray", "jaxattn.masks.Dense(array)"],
    ),
    # implementations
    "unknown implementation": (
        lambda: attention(implementation="flash"),
        ValueError,
        ["implementation must be None or one of 'dense'", "'flash'"],
    ),
    # the path
    "project without weight": (
        lambda: jaxattn.project(zeros(5, 4), None),
        TypeError,
        ["weight must be an array [D, F]", "NoneType"],
    ),
    "weight of rank 3": (
        lambda: jaxattn.project(zeros(5, 4), zeros(4, 2, 3)),
        ValueError,
        ["weight must be [D, F]", "[4, 2, 3]", "split_heads"],
    ),
    "D": (
        lambda: jaxattn.project(zeros(5, 4), zeros(3, 4)),
        ValueError,
        ["D must agree", "x has D = 4, weight has D = 3", "weight.T"],
    ),
    "projection's bias": (
        lambda: jaxattn.project(zeros(5, 4), zeros(4, 3), zeros(4)),
        ValueError,
        ["bias must be [F] = [3]", "[4, 3]", "[4]"],
    ),
    "scalar x": (
        lambda: jaxattn.project(zeros(), zeros(4, 3)),
        ValueError,
        ["x must be [*B, T, D]", "[]"],
    ),
    "heads": (
        lambda: jaxattn.split_heads(zeros(5, 12), 5),
        ValueError,
        ["heads must be a positive divisor", "[*B, T, N*H]", "heads = 5", "[5, 12]"],
    ),
    "no heads": (
        lambda: jaxattn.split_heads(zeros(5, 12), 0),
        ValueError,
        ["heads must be a positive divisor", "heads = 0"],
    ),
    "half a head": (
        lambda: jaxattn.split_heads(zeros(5, 12), 1.5),
        TypeError,
        ["heads must be an integer", "1.5"],
    ),
    "merge_heads of a matrix": (
        lambda: jaxattn.merge_heads(zeros(5, 12)),
        ValueError,
        ["x must be [*B, N, T, H] with at least 3 axes", "[5, 12]"],
    ),
    "scores of vectors": (
        lambda: jaxattn.attention_scores(zeros(3), zeros(7, 3)),
        ValueError,
        ["query must be [..., T, H] with at least 2 axes", "[3]"],
    ),
    "H of scores": (
        lambda: jaxattn.attention_scores(zeros(5, 3), zeros(7, 4)),
        ValueError,
        ["H must agree", "query has H = 3, key has H = 4"],
    ),
    "weights with a float mask": (
        lambda: attention_weights(zeros(5, 7), zeros(5, 7)),
        TypeError,
        ["mask must be boolean [..., T, S]", "bias="],
    ),
    "weights with a mask that does not fit": (
        lambda: attention_weights(zeros(5, 7), np.ones((5, 6), bool)),
        ValueError,
        ["mask must broadcast against scores [..., T, S] = [5, 7]", "[5, 6]"],
    ),
    "weights with a mask that is larger": (
        lambda: attention_weights(zeros(5, 7), np.ones((2, 5, 7), bool)),
        ValueError,
        ["mask must broadcast against scores [..., T, S] = [5, 7]", "[2, 5, 7]"],
    ),
    "integer scores": (
        lambda: attention_weights(zeros(5, 7, dtype="int32")),
        TypeError,
        ["scores must be a floating array [..., T, S]", "int32[5, 7]"],
    ),
    "S of the sum": (
        lambda: weighted_sum(zeros(5, 7), zeros(6, 3)),
        ValueError,
        ["S must agree", "weights has S = 7, value has S = 6"],
    ),
    # merge
    "merge of a part and a number": (
        lambda: merge(jaxattn.Partial(zeros(5, 4, 3), zeros(5, 4)), 1),
        TypeError,
        ["right must be a Partial(out, lse)", "partial_attention", "int"],
    ),
    "lse without its axes": (
        lambda: merge(*[jaxattn.Partial(zeros(5, 4, 3), zeros(5))] * 2),
        ValueError,
        ["left.lse must be [*B, T, N]", "left.out [*B, T, N, Hv]", "[5]", "[5, 4, 3]"],
    ),
    "parts of two dtypes": (
        lambda: merge(
            jaxattn.Partial(zeros(5, 4, 3), zeros(5, 4)),
            jaxattn.Partial(zeros(5, 4, 3, dtype="float64"), zeros(5, 4, dtype="float64")),
        ),
        TypeError,
        ["left.lse, right.lse must share one dtype", "float32", "float64"],
    ),
    # positions
    "float token positions": (
        lambda: sinusoidal(zeros(5), 4),
        TypeError,
        ["positions must be an integer array [*B, T]", "float32[5]"],
    ),
    "width": (lambda: sinusoidal(jnp.arange(5), 0), ValueError, ["width must be D ≥ 1", "0"]),
    "rotary of heads first": (
        lambda: rotary(zeros(4, 5, 8), jnp.arange(5)),
        ValueError,
        ["positions must be [T] or [*B, T]", "[4, 5, 8]", "[5]", "tokens before heads"],
    ),
    "odd rotary size": (
        lambda: rotary(zeros(5, 4, 8), jnp.arange(5), size=3),
        ValueError,
        ["size must be even and at most H = 8", "3"],
    ),
    "large rotary size": (
        lambda: rotary(zeros(5, 4, 8), jnp.arange(5), size=10),
        ValueError,
        ["size must be even and at most H = 8", "10"],
    ),
    "odd head size": (
        lambda: rotary(zeros(5, 4, 7), jnp.arange(5)),
        ValueError,
        ["size must be even and at most H = 7", "7"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, exception, parts = BAD[name]
    with pytest.raises(exception) as caught:
        call()
    assert type(caught.value) is exception, "a user's error, not one of JAX's"
    message, start = str(caught.value), 0
    for part in parts:
        found = message.find(part, start)
        assert found >= 0, f"{part!r} is not in its place in {message!r}"
        start = found + len(part)


@pytest.mark.parametrize("name", ["self_attention", "cross_attention"])
def test_one_head_with_a_bad_mask(name):
    x, weight = zeros(5, 4), zeros(4, 3)
    tokens = (x,) if name == "self_attention" else (x, x)
    with pytest.raises((TypeError, ValueError), match="mask"):
        getattr(jaxattn, name)(*tokens, *[weight] * 3, mask=And(Causal(), Dense(zeros(5, 5))))


@pytest.mark.parametrize(
    "function",
    [jaxattn.attention, jaxattn.partial_attention, jaxattn.attention_with_weights],
    ids=lambda function: function.__name__,
)
def test_every_entrance_has_the_same_door(function):
    query, key, value = zeros(2, 5, 4, 3), zeros(2, 7, 2, 3), zeros(2, 7, 2, 6)
    with pytest.raises(TypeError, match=r"mask must be boolean"):
        function(query, key, value, mask=zeros(5, 7))
    with pytest.raises(TypeError, match=r"query must be a floating array"):
        function(query.astype(int), key, value)
    with pytest.raises(TypeError, match="positional"):
        function(query, key, value, TABLE)


def test_errors_come_under_jit_too():
    with pytest.raises(ValueError, match="S must agree"):
        jax.jit(jaxattn.attention)(zeros(5, 4, 3), zeros(7, 4, 3), zeros(6, 4, 3))
