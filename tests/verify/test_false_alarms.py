"""Right attentions pass everything that they support, for every seed and dtype."""

import functools

import pytest

import jaxattn
from jaxattn.verify.adapters import with_partial
from jaxattn.verify.door import DTYPES, make_subject, results
from jaxattn.verify.table import CHECKS, chosen

from .implementations import RIGHT, subject_of


def jaxattn_subject(implementation):
    """One implementation, with what it claims; tiles are small in tests, so that it has several."""
    bind = functools.partial(functools.partial, implementation=implementation)
    both = with_partial(bind(jaxattn.attention), bind(jaxattn.partial_attention))
    memory = ("linear_memory",) if implementation == "blockwise" else ()
    return make_subject(both, supports=("lse", "bias", "scale", *memory), name=implementation)


def alarms(subject, seeds, checks, dtypes=DTYPES, least=20):
    """The messages of all failures; seeds share what is compiled."""
    found, passed = [], 0
    for seed in seeds:
        for result in results(subject, dtypes=dtypes, checks=checks, seed=seed):
            passed += result.status == "pass"
            if result.status == "fail":
                found.append(f"seed {seed}: {result.message}")
    assert passed >= len(seeds) * least, "hardly anything was run"
    return found


def test_dense_passes_all_checks():
    assert alarms(subject_of("dense"), range(1), CHECKS) == []


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_jaxattn_passes_values_and_empty_rows(implementation):
    checks = chosen(only=("values", "empty"), quick=True)
    assert alarms(jaxattn_subject(implementation), range(1), checks, ("float64",), 10) == []


def test_half_precision_passes_values_and_structure():
    function, _, supports = RIGHT["dense"]
    subject = make_subject(function, supports=(*supports, "bfloat16", "float16"))
    checks = chosen(only=("values", "structure", "padding"), skip=("third_order_poison",))
    assert alarms(subject, range(1), checks, ("bfloat16", "float16")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RIGHT))
def test_no_false_alarm_in_twenty_seeds(name):
    assert alarms(subject_of(name), range(20), CHECKS) == []


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_jaxattn_passes_all_checks(implementation):
    checks = chosen(skip=("memory_growth",))  # it needs tiles of the usual size: a slow test below
    assert alarms(jaxattn_subject(implementation), range(1), checks) == []


@pytest.mark.slow
def test_blockwise_memory_is_linear_and_dense_is_not(monkeypatch):
    monkeypatch.setattr(jaxattn.plan, "ROWS", 1024)
    monkeypatch.setattr(jaxattn.plan, "COLUMNS", 512)
    checks = chosen(only=("memory_growth",))
    for implementation, status in (("blockwise", "pass"), ("dense", "unsupported")):
        found = results(jaxattn_subject(implementation), dtypes=("float32",), checks=checks)
        assert [result.status for result in found] == [status]
