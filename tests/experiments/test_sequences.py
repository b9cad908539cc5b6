"""Experiments on sequences: their judges, on made-up results, and their quick runs."""

import jax
import numpy as np
import pytest

from experiments import linear_attention_takes_linear_time as linear

babel = pytest.importorskip("babel", reason="pip install 'jaxattn[experiments]'")

from experiments import attention_translates_dates as translates  # noqa: E402
from experiments import dates, translation  # noqa: E402
from experiments import one_vector_is_a_bottleneck as bottleneck  # noqa: E402
from experiments import weights_are_not_an_explanation as explanation  # noqa: E402
from experiments.report import checked_result  # noqa: E402


@pytest.fixture(autouse=True)
def as_users_run_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def held(claims):
    return [claim["holds"] for claim in claims]


def test_both_models_must_be_right():
    plans = dict(zip(translates.LIMITS, translates.Sizes().plans, strict=True))
    assert [plan.steps for plan in plans.values()] == [1000, 1500]

    def judged(gru, transformer):
        shares = {translates.GRU: gru, translates.TRANSFORMER: transformer}
        return held(translates.claims({k: {"greedy": v} for k, v in shares.items()}, plans))

    assert judged(0.99, 0.98) == [True, True] and judged(0.989, 0.979) == [False, False]


def test_the_gap_of_two_dates_and_of_one():
    def judged(*shares):
        names = [(task.name, kind) for task in (bottleneck.TWO, bottleneck.ONE)
                 for kind in bottleneck.KINDS]  # fmt: skip
        return held(bottleneck.claims(dict(zip(names, shares, strict=True)), 500))

    assert judged(0.8, 0.2, 0.9, 0.7) == [True, True, True]
    assert judged(0.79, 0.21, 0.9, 0.5) == [False, False, False]


def test_shares_by_length():
    lengths, right = np.repeat([3, 9, 20], [40, 20, 19]), np.arange(79) % 2 == 0
    assert bottleneck.by_length(lengths, right) == {"0-7": 0.5, "8-15": 0.5}


def test_a_slope_is_that_of_its_power():
    sizes = (1024, 4096, 8192, 16384)
    assert linear.slope({size: 3 * size**1.5 for size in sizes}) == pytest.approx(1.5)
    below = {size: 1.0 if size < 4096 else size for size in sizes}
    assert linear.slope(below) == pytest.approx(1.0)
    assert linear.ratios({2: 1.0, 4: 3.0, 16: 5.0}) == {"2 to 4": 3.0}


def test_time_that_grows_as_another_power_is_no_linear_time():
    times = {name: {8: 1.0} for name in linear.functions()}
    slopes = dict(zip(times, (0.79, 1.0, 1.31, 1.5), strict=True))
    assert held(linear.claims(slopes, times)) == [False, True, False, False]


def test_agreement_leaves_padding_out():
    weights = np.array([[[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.7, 0.0]]])
    influence = np.array([[[5.0, 3.0, 2.0, 9.0], [3.0, 2.0, 1.0, 9.0]]])
    found = explanation.agreement(weights, influence, np.array([3]))
    np.testing.assert_allclose(found.correlation, [1, -1])
    assert found.same_largest.tolist() == [True, False]


@pytest.mark.parametrize("attention", ["additive", "transformer"])
def test_models_ignore_padding_and_look_at_the_source_alone(attention):
    """A source padded to another length is the same source."""
    size = translation.Size(width=8, hidden=8, layers=1, heads=2)
    rng = np.random.default_rng(0)
    source, target = (rng.integers(3, 9, shape).astype(np.int32) for shape in ((2, 6), (2, 5)))
    short = dates.Pairs(source, np.array([6, 4], np.int32), target)
    source = np.where(np.arange(6) < short.lengths[:, None], source, 7)  # another padding
    other = short._replace(source=source.astype(np.int32))
    if attention == "additive":
        model = translation.recurrent(9, size)
    else:
        model = translation.transformer(9, size, 6, 4)
    weights = [np.asarray(translation.alignments(model, pairs)) for pairs in (short, other)]
    np.testing.assert_array_equal(*weights)
    np.testing.assert_allclose(weights[0].sum(axis=-1), 1, rtol=1e-5)
    assert weights[0].shape == (2, 4, 6) and np.all(weights[0][1, :, 4:] == 0)


@pytest.mark.slow
@pytest.mark.parametrize("module", [translates, bottleneck, explanation, linear])
def test_quick(module, tmp_path):
    result = checked_result(module.run(tmp_path, quick=True))
    assert [claim for claim in result["claims"] if not claim["holds"]] == []
    assert all(figure.stat().st_size > 10_000 for figure in result["figures"])
