"""The race of `generation_reads_its_cache`: what it claims can fail, and all run the same model."""

import numpy as np
import pytest

pytest.importorskip("rich", reason="pip install 'jaxattn[experiments]'")

from experiments import generation_race
from experiments.generation_race import AGAIN, OURS, Race, Setting

SMALL = Setting(width=8, layers=2, heads=2, prompt=5, steps=4)


def test_what_is_claimed_can_fail():
    tokens = {OURS: np.array([1, 2]), AGAIN: np.array([1, 3])}
    seconds = {OURS: [1.0, 1.0, 9.0], AGAIN: [3.0, 4.0, 9.0]}
    wrong = Race(seconds, tokens, {}, difference=1e-3)
    assert [claim["holds"] for claim in generation_race.claims({SMALL: wrong})] == [False, False]
    assert wrong.ratios() == {AGAIN: 3.0} and wrong.tokens_per_second() == {OURS: 2.0, AGAIN: 0.5}
    right = wrong._replace(tokens={OURS: tokens[OURS]}, difference=None)
    assert [claim["holds"] for claim in generation_race.claims({SMALL: right})] == [True]


def test_all_write_the_same_without_pytorch_and_with_it():
    race = generation_race.race(SMALL, turns=1)
    assert race.same_tokens() and {OURS, AGAIN} <= set(race.tokens)
    assert race.difference is None or race.difference < 1e-5
    assert all(claim["holds"] for claim in generation_race.claims({SMALL: race}))
