"""The door: what it takes, what it reports, and what it makes of functions that misbehave."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.verify import AttentionError, Report, attention_checks, check_all, dense_attention
from jaxattn.verify import parametrize_with_attention_checks as parametrize
from jaxattn.verify.mutants import mutant

FEW = ("values", "noether_value_sum")


def status(report: Report, check: str, dtype: str = "float32") -> str:
    return next(r.status for r in report.results if (r.check, r.dtype) == (check, dtype))


def test_right_function_passes_and_says_so():
    report = check_all(dense_attention, only=FEW, supports=("lse",))
    assert report.passed and not report.failures
    report.raise_for_failures()
    text = str(report)
    assert "16 passed, 0 failed" in text and "noether_value_sum" in text and "float64" in text


def test_wrong_function_fails_with_all_that_one_needs_to_know():
    report = check_all(mutant("no_scale").function, only=("oracle",), dtypes=("float64",), seed=3)
    with pytest.raises(AttentionError) as caught:
        report.raise_for_failures()
    text = str(caught.value)
    for part in (
        "softmax(q kᵀ / √H) v",
        "got ",
        "expected ",
        "at [",
        "allowed ",
        "seed=3",
        "twice the error",
    ):
        assert part in text, part


def test_reproduction_runs_and_raises():
    report = check_all(mutant("no_scale").function, only=("oracle",), dtypes=("float32",))
    lines = report.failures[0].message.split("to reproduce:")[1].strip().splitlines()
    with pytest.raises(AttentionError, match="oracle"):
        exec("\n".join(line.strip() for line in lines), {})


def test_not_claimed_is_unsupported_and_never_passed():
    report = check_all(
        dense_attention, only=("grouped_heads", "lse_definition"), supports=("-gqa",)
    )
    assert {r.status for r in report.results} == {"unsupported"}
    assert not report.passed
    with pytest.raises(AttentionError, match="none was run"):
        report.raise_for_failures()


def test_dtype_not_claimed_is_unsupported():
    report = check_all(dense_attention, only=("oracle",), supports=("-float64",))
    assert status(report, "oracle", "float64") == "unsupported"
    assert status(report, "oracle", "float32") == "pass"


@pytest.mark.parametrize("wide", [True, False])
def test_setting_of_64_bits_is_used_and_restored(wide):
    with jax.enable_x64(wide):
        report = check_all(
            dense_attention, only=("oracle", "dtypes"), dtypes=("float64", "float32")
        )
        assert report.passed
        assert jnp.ones(2, float).dtype == (jnp.float64 if wide else jnp.float32)


def test_function_that_raises_is_one_cause_and_the_run_goes_on():
    def broken(query, key, value, mask=None):
        raise RuntimeError("no such kernel")

    report = check_all(broken, only=FEW, dtypes=("float32",))
    assert len(report.failures) == 7
    assert "ONE CAUSE, 7 failures" in str(report) and "RuntimeError: no such kernel" in str(report)


def test_function_that_exits_does_not_end_the_run():
    def leaving(query, key, value, mask=None):
        raise SystemExit(3)

    assert len(check_all(leaving, only=FEW, dtypes=("float32",)).failures) == 7


def test_wrong_shape_and_nan_are_one_cause_each():
    for name, text in (
        ("wrong_shape", "out has shape"),
        ("prints_and_is_nan", "NaN on ordinary input"),
    ):
        report = check_all(
            mutant(name).function, only=("oracle", "uniform_scores"), dtypes=("float32",)
        )
        assert len(report.failures) == 2
        assert f"ONE CAUSE, 2 failures: {report.name}" in str(report) and text in str(report)


def test_wrong_type_is_named():
    report = check_all(lambda q, k, v, mask=None: None, only=("oracle",), dtypes=("float32",))
    assert "NoneType where an array" in report.failures[0].message


def test_printing_is_kept_out_of_the_way_and_reported(capsys):
    report = check_all(mutant("prints_and_is_nan").function, only=FEW, dtypes=("float32",))
    assert "scores:" not in capsys.readouterr().out
    assert "printed or warned" in str(report) and "scores:" in str(report)


def test_slow_function_is_reported(monkeypatch):
    from jaxattn.verify import report as reports

    monkeypatch.setattr(reports, "SLOW", 0.05)

    def slow(query, key, value, mask=None):
        time.sleep(0.1)
        return dense_attention(query, key, value, mask)

    assert "slow: oracle" in str(
        check_all(slow, only=("oracle",), dtypes=("float32",), supports=("-jit",))
    )


def test_float32_inside_is_one_cause():
    report = check_all(mutant("float32_inside").function, only=("values", "noether"))
    failed = {r.dtype for r in report.failures}
    assert failed == {"float64"}
    assert len({r.cause for r in report.failures}) == 1
    assert "computes in float32 inside" in str(report) and "(1 cause)" in str(report)


def test_one_property_that_fails_in_several_checks_and_dtypes_is_one_cause():
    report = check_all(mutant("mean_on_empty_rows").function, only=("empty_rows", "no_keys"))
    failed = [(r.check, r.dtype) for r in report.failures]
    assert failed == [("empty_rows", "float32"), ("empty_rows", "float64")]
    assert "2 failed (1 cause)" in str(report) and "empty_rows [float64] 0." in str(report)
    poison = check_all(mutant("nan_from_padding").function, only=("padding",), dtypes=("float64",))
    assert "2 failed (1 cause)" in str(poison) and "lets padding through" in str(poison)


def test_function_that_cannot_be_compiled_still_gets_judged():
    def eager(query, key, value, mask=None):
        return jnp.asarray(np.asarray(dense_attention(*map(np.asarray, (query, key, value)), mask)))

    values = ("oracle", "leak", "jit_equals_eager")
    report = check_all(eager, only=values, dtypes=("float32",))
    assert (status(report, "oracle"), status(report, "jit_equals_eager")) == ("pass", "fail")
    assert "Tracer" in report.failures[0].message


def test_causal_function_takes_no_mask():
    def causal(query, key, value):
        return dense_attention(query, key, value, jnp.tri(query.shape[-3], dtype=bool))

    report = check_all(
        causal, causal=True, only=("structure", "padding", "empty", "oracle"), dtypes=("float32",)
    )
    assert not report.failures
    assert status(report, "zeros_in_reverse") == "pass"
    assert status(report, "empty_rows") == "unsupported"
    with pytest.raises(ValueError, match="without a mask"):
        check_all(causal, causal=True, supports=("mask",))


def test_names_that_do_not_exist_are_refused():
    for wrong in (
        {"only": ("orcale",)},
        {"skip": "nothing"},
        {"supports": ("flash",)},
        {"dtypes": ("int8",)},
    ):
        with pytest.raises(ValueError):
            check_all(dense_attention, **wrong)


def test_json_and_page_hold_the_results():
    report = check_all(
        mutant("no_scale").function, only=("oracle", "constant_value"), dtypes=("float32",)
    )
    read = json.loads(report.to_json())
    assert read["counts"] == {"pass": 1, "fail": 1, "unsupported": 0}
    assert not read["passed"] and read["results"][0]["error"] > read["results"][0]["tolerance"]
    page = report.to_html()
    assert page.startswith("<!doctype html>") and "<script" not in page and 'class="fail"' in page
    assert "http" not in page


@parametrize([dense_attention], only=("values",), dtypes=("float64",), supports=("lse",))
def test_decorator(attention, check):
    check(attention)


def test_decorator_makes_tests_that_can_fail():
    checks = list(attention_checks(only=("values",), dtypes=("float32",)))
    assert [check.name for check in checks][0] == "oracle-float32"
    with pytest.raises(AttentionError, match="oracle"):
        checks[0](mutant("no_scale").function)


def test_same_seed_gives_the_same_numbers():
    first, second = (
        check_all(dense_attention, only=("gradient_oracle",), dtypes=("float32",), seed=5)
        for _ in range(2)
    )
    assert first.results[0].error == second.results[0].error
