"""`explain` tells what `attention` does, without doing it."""

import inspect

import jax
import jax.numpy as jnp
import pytest

import jaxattn
from jaxattn import _explain_cli, explain, plan
from jaxattn.masks import Causal, Predicate, Segments
from tests import calls


def operands(length, heads=1, size=1, key_heads=None):
    shape = (length, heads, size)
    query = jnp.zeros(shape, jnp.float32)
    key = jnp.zeros((length, key_heads or heads, size), jnp.float32)
    return query, key, key


def test_the_arguments_are_those_of_attention():
    assert inspect.signature(explain).parameters == inspect.signature(jaxattn.attention).parameters
    with pytest.raises(TypeError, match="unexpected"):
        explain(*operands(4), causal=True)


def test_the_default_rule_is_the_one_that_attention_follows():
    for length, name in ((256, "dense"), (512, "blockwise")):
        found = explain(*operands(length))
        assert found.implementation == name
        assert [v.runs for v in found.verdicts] == [v.name == name for v in found.verdicts]
        assert all(v.reason for v in found.verdicts)


def test_every_implementation_has_a_verdict_in_the_order_of_the_table():
    found = explain(*operands(8))
    assert [v.name for v in found.verdicts] == [e.name for e in jaxattn.IMPLEMENTATIONS]


def test_a_named_implementation_runs_and_an_unknown_one_raises():
    assert explain(*operands(8), implementation="blockwise").implementation == "blockwise"
    with pytest.raises(ValueError, match="one of 'dense', 'blockwise', got 'none such'"):
        explain(*operands(8), implementation="none such")


def test_a_share_of_all_is_100_percent():
    assert "(100% computed)" in str(explain(*operands(8)))


def test_tiles_are_counted_as_they_are_visited(monkeypatch):
    monkeypatch.setattr(plan, "ROWS", 8)
    monkeypatch.setattr(plan, "COLUMNS", 8)
    found = explain(*operands(64), mask=Causal(), implementation="blockwise").tiles
    assert found == (8, 8, 28, 8, 28)
    assert found.active == 36 / 64


def test_tiles_of_data_are_counted_where_the_data_are_known(monkeypatch):
    monkeypatch.setattr(plan, "ROWS", 8)
    monkeypatch.setattr(plan, "COLUMNS", 8)
    x, ids = operands(32), jnp.arange(32, dtype=jnp.int32) // 8
    assert explain(*x, mask=Segments(ids)).tiles == (8, 8, 12, 0, 4)
    told = []
    calls.jit(lambda ids: told.append(explain(*x, mask=Segments(ids))) or ids)(ids)
    assert told[0].tiles is None and "run time" in str(told[0])


def test_cost_of_the_value():
    query, key, value = operands(8, heads=2, size=3)
    dense, tiled = explain(query, key, value, mask=Causal()).verdicts
    assert dense.flops == 2 * 2 * 8 * 8 * (3 + 3)
    assert tiled.flops == dense.flops * explain(query, key, value, mask=Causal()).tiles.active
    assert dense.bytes == 4 * (4 * 8 * 2 * 3 + 2 * 2 * 8 * 8)


def test_nothing_of_all_pairs_is_made(monkeypatch):
    """A million tokens; a predicate is called for no pair."""
    monkeypatch.setattr(plan, "ROWS", plan.DEFAULT_ROWS)
    monkeypatch.setattr(plan, "COLUMNS", plan.DEFAULT_COLUMNS)
    x = jax.ShapeDtypeStruct((10**6, 1, 4), jnp.float32)
    told = []
    jax.eval_shape(lambda x: told.append(explain(x, x, x, mask=Predicate(lambda i, j: j < i))), x)
    assert told[0].implementation == "blockwise"


def test_bad_input_is_an_error_as_in_attention():
    with pytest.raises(TypeError, match="mask"):
        explain(*operands(4), mask=jnp.zeros((4, 4), jnp.float32))
    with pytest.raises(ValueError, match="sink"):
        explain(*operands(4, heads=2), sink=jnp.zeros(3, jnp.float32))


def test_the_command(capsys):
    assert _explain_cli.main(["--length", "64", "--mask", "Causal()"]) == 0
    assert "-> dense" in capsys.readouterr().out
    assert _explain_cli.main(["--length", "4", "--keys", "8", "--mask", "Causal()"]) == 2
    assert "align" in capsys.readouterr().err
    assert _explain_cli.main(["--length", "4", "--implementation", "x"]) == 2
    assert "'blockwise', got 'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--length", "-5"], "--length must be at least 0, got -5"),
        (["--length", "4", "--key-heads", "-1"], "--key-heads must be at least 0, got -1"),
        (["--length", "4", "--mask", "1/0"], "--mask '1/0' cannot be evaluated: ZeroDivisionError"),
        (["--length", "4", "--mask", "Causal.foo"], "--mask 'Causal.foo' cannot be evaluated"),
        (["--length", "4", "--mask", "Nothing()"], "'Nothing' is not defined"),
        (["--length", "4", "--mask", "Causl()"], "masks are And, BigBird, Block, Causal, Dense"),
        (["--length", "4", "--mask", "Causal("], "SyntaxError"),
    ],
)
def test_wrong_usage_is_one_line_and_status_two(arguments, message, capsys):
    assert _explain_cli.main(arguments) == 2
    found = capsys.readouterr().err
    assert message in found and len(found.splitlines()) == 1
