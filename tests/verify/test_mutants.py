"""The checks are checked: every mutant is killed, and every check kills the mutant it names."""

import functools

import jax
import pytest

from jaxattn.verify import CHECKS, MUTANTS
from jaxattn.verify.door import make_subject, results
from jaxattn.verify.mutants import mutant
from jaxattn.verify.table import chosen

# Killers of the mutants that no check names as its own.
KILLED_BY = {
    "softmax_over_queries": "constant_value",
    "float32_inside": "oracle",
    "mask_minus_billion": "leak",
    "mask_ignored": "single_key",
    "examples_mixed": "head_independence",
    "transposed_layout": "oracle",
    "prints_and_is_nan": "convex_hull",
    "wrong_shape": "linear_in_value",
    "key_gradient_with_wrong_sign": "noether_euler",
    "weights_squared_in_gradient": "noether_key_sum",
    "gradient_without_mask": "zeros_in_reverse",
    "gradient_with_lse_in_base_two": "noether_value_sum",
    "dropout_differs_in_backward": "noether_value_out",
    "tangent_with_query_twice": "tangent_oracle",
}
# Mutants whose fault is that they raise, or that their result has no shape to measure.
RAISES = (
    "mask_must_be_known",
    "square_only",
    "carry_does_not_vary",
    "wrong_shape",
)
# From the mutation study: these need the named check, and survive all gradient checks.
SURVIVES = {
    "scale_one_over_size": ("adjoint", "noether_query_key", "hessian_symmetry"),
    "causal_off_by_one": ("adjoint", "noether_value_sum", "taylor_gradient", "hessian_symmetry"),
    "second_order_dropped": ("gradient_oracle", "tangent_oracle", "adjoint", "noether_query_key"),
    "third_order_dropped": ("gradient_oracle", "hessian_oracle", "taylor_hessian"),
}


@functools.cache
def subject_of(name):
    """One subject a mutant, so that its programs are compiled once for all tests."""
    found = mutant(name)
    return make_subject(
        found.function, supports=found.supports, name=f"jaxattn.verify.mutants:{name}"
    )


def statuses(name, checks, dtypes=("float64",)):
    found = results(subject_of(name), dtypes=dtypes, checks=chosen(only=checks))
    return {result.check: result.status for result in found}


def killed(name, check, dtypes=("float64",)):
    """Whether the check fails by what it measured: an error that was raised is no measurement."""
    (result,) = results(subject_of(name), dtypes=dtypes, checks=chosen(only=(check,)))
    assert (result.error is None) == (result.status == "fail" and name in RAISES), result.message
    return result.status == "fail"


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_check_kills_its_mutant(check):
    assert killed(check.kills, check.name)


@pytest.mark.parametrize(("name", "check"), KILLED_BY.items())
def test_mutant_is_killed(name, check):
    assert killed(name, check)


def test_every_mutant_is_in_one_of_the_two_tables():
    named = {check.kills for check in CHECKS}
    assert {each.name for each in MUTANTS} == named | set(KILLED_BY)
    assert not named & set(KILLED_BY)
    assert len(MUTANTS) >= 30


@pytest.mark.parametrize(("name", "checks"), SURVIVES.items())
def test_mutant_survives_what_the_study_says_it_survives(name, checks):
    """Why the toolkit needs more than gradient checks."""
    assert set(statuses(name, checks).values()) == {"pass"}


def test_mutants_in_float32():
    """Bugs of order one are seen in float32 as well."""
    for name, check in (
        ("no_scale", "oracle"),
        ("causal_off_by_one", "zeros_in_reverse"),
        ("key_gradient_without_scale", "noether_query_key"),
        ("second_order_dropped", "hessian_oracle"),
        ("mean_on_empty_rows", "empty_rows"),
        ("lse_in_base_two", "lse_definition"),
    ):
        assert killed(name, check, ("float32",)), name


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in MUTANTS])
def test_every_mutant_fails_the_toolkit_and_no_mutant_is_missing_from_the_report(name):
    found = statuses(name, None)
    assert "fail" in found.values()
    print(name, [check for check, status in found.items() if status == "fail"])
    subject_of.cache_clear()  # all programs of all mutants are too many for one process
    jax.clear_caches()
