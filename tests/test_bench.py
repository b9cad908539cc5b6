"""The benchmark times what it says; no test depends on how fast anything is."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import jaxattn
from jaxattn.bench import cli, clock, contestants, table
from jaxattn.bench.cases import CASES, DOCUMENT, WINDOW, Case
from jaxattn.bench.clock import Timing
from jaxattn.bench.contestants import Contestant, LeftOut


@pytest.fixture(autouse=True)
def usual_promotion():
    """Others' code promotes dtypes as JAX does by default."""
    import jax

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("mask", ["full", "causal", "window", "packed"])
@pytest.mark.parametrize("length", [WINDOW + 3, DOCUMENT + 5])
def test_pairs_are_those_of_the_mask(mask, length):
    case = Case("test", mask, length)
    allowed = contestants.allowed(case) if mask != "full" else np.ones((length, length))
    assert case.pairs == allowed.sum()


@pytest.mark.parametrize(
    "mask",
    ["causal", *(pytest.param(m, marks=pytest.mark.slow) for m in ("full", "window", "packed"))],
)
def test_everybody_computes_the_same(mask):
    case = Case("test", mask, WINDOW + 8, heads=2, key_heads=2, size=4)
    query, key, value, _ = (jnp.asarray(x) for x in contestants.arrays(case))
    allowed = jnp.asarray(contestants.allowed(case)) if mask != "full" else None
    want = jaxattn.attention(query, key, value, mask=allowed, implementation="dense")
    for contestant in contestants.everybody(limit=8):
        try:
            got = contestant.prepare(case, "forward")()
        except LeftOut:
            assert contestant.name in ("torch", "flax")
            continue
        got = np.asarray(got)
        got = got.swapaxes(1, 2) if contestant.name == "torch" else got
        assert np.abs(got - np.asarray(want)).max() < 1e-5, contestant.name


def test_derivatives_are_taken_along_the_operands():
    cubes = lambda x: x**3
    x, cotangent = jnp.array(2.0), jnp.array(5.0)
    found = {mode: contestants.derivative(cubes, mode)(cotangent, x) for mode in cli.MODES}
    assert found["forward"] == 8 and found["grad"] == (60,) and found["hvp"] == (120,)
    assert found["jvp"] == (8, 24)


def test_all_take_turns_and_medians_count():
    seen = []

    def prepare(name):
        return lambda case, mode: lambda: seen.append(name)

    def refuse(case, mode):
        raise LeftOut("has other plans")

    racers = [Contestant(name, prepare(name)) for name in "ab"] + [Contestant("c", refuse)]
    found = clock.race(racers, CASES[0], "forward", repeats=3, budget=0)
    assert [timing.contestant for timing in found] == ["a", "b", "c"]
    assert found[0].turns == 3 and found[0].fastest <= found[0].median
    assert found[2].median is None and found[2].reason == "has other plans"
    turns = [name for name, before in zip(seen, [None, *seen[:-1]], strict=True) if name != before]
    assert turns == ["a", "b"] * 4  # to warm up, then three turns


def test_the_median_and_the_fastest_turn_are_told():
    ready = clock.Ready("a", lambda: None, compile=0.5, calls=1)
    assert clock.summary(ready, [9.0, 1.0, 2.0]) == Timing("a", 2.0, 1.0, 0.5, 3)


def test_dense_paths_that_would_fill_the_memory_are_left_out():
    with pytest.raises(LeftOut, match="GiB"):
        contestants.jax_nn(Case("test", "full", 2**15), "grad", limit=8)


def test_ratios_and_shares():
    case = Case("test", "full", 1000, heads=1, key_heads=1, size=50)
    timings = [Timing("jaxattn", 0.1, 0.1, 1.5, 3), Timing("jax.nn", 0.25, 0.2, 1.0, 3)]
    text = table.text([table.Row(case, "forward", timings)], ["jaxattn", "jax.nn"], rate=4e9)
    assert "| 100 | 50% | 2.50 | 1.5 |" in text


def test_the_command_writes_table_numbers_and_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "matmul_rate", lambda: 1e9)
    arguments = ["--quick", "--only", "T=128", "--modes", "forward", "--against", "jax.nn"]
    assert cli.main([*arguments, "--repeats", "1", "--out", str(tmp_path)]) == 0
    assert "jax.nn / ours" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["rows"][0]["length"] == 128 and found["machine"]["versions"]["jax"]
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.md", "bench.png"}


def test_stopped_before_the_first_row_it_keeps_the_earlier_one(tmp_path, capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "matmul_rate", lambda: 1e9)
    monkeypatch.setattr(cli, "race", stopped)
    (tmp_path / "bench.json").write_text("earlier")
    assert cli.main(["--quick", "--modes", "forward", "--out", str(tmp_path)]) == 130
    assert (tmp_path / "bench.json").read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_an_unusable_folder_is_noticed_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "matmul_rate", lambda: pytest.fail("it works already"))
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert cli.main(["--quick", "--out", str(out)]) == 2
        assert "--out must be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad", [["--modes", "backward"], ["--modes", ""], ["--against", "me"], ["--only", "zzz"]]
)
def test_bad_options_say_what_there_is(bad, capsys):
    assert cli.main(bad) == 2
    assert "jaxattn bench:" in capsys.readouterr().err
