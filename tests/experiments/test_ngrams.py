"""n-gram models: probabilities that sum to 1, and the same numbers as by hand and by dictionary."""

import math
from collections import Counter

import numpy as np
import pytest

from experiments import ngrams


def as_bytes(text):
    return np.frombuffer(text, np.uint8)


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_probabilities_sum_to_one(order):
    rng = np.random.default_rng(order)
    orders = ngrams.fit_kneser_ney(rng.integers(97, 101, 400).astype(np.uint8), order)
    for seen in (True, False):  # contexts of the text's letters, and of any bytes
        low, high = (97, 101) if seen else (0, 256)
        histories = rng.integers(low, high, (20, order - 1)).astype(np.uint8)
        for history in histories:
            tails = np.arange(256, dtype=np.uint8)[:, None]
            asked = np.concatenate([np.tile(history, (256, 1)), tails], axis=1)
            keys = np.concatenate([ngrams.windows(row, order) for row in asked])
            probability = ngrams.kneser_ney(orders, keys)
            assert probability.min() > 0
            assert probability.sum() == pytest.approx(1, abs=1e-12)


def test_a_bigram_by_hand():
    # "abab": ab twice, ba once, so D_2 = 1 / (1 + 2); before a only b, before b only a: counts
    # 1 and 1, D_1 = 1, so that p_1 is uniform. p(b | a) = (2 - 1/3) / 2 + 1/3 · 1/2 · 1/256.
    orders = ngrams.fit_kneser_ney(as_bytes(b"abab"), 2)
    assert [order.discount for order in orders] == [1, pytest.approx(1 / 3)]
    (found,) = ngrams.kneser_ney(orders, ngrams.windows(as_bytes(b"ab"), 2))
    assert found == pytest.approx(5 / 6 + 1 / 6 / 256)


def by_dictionary(text, history, symbol, order):
    """The definition, with sets of tuples."""
    top = len(history) + 1 == order
    grams = [tuple(text[i : i + len(history) + 1]) for i in range(len(text) - len(history))]
    if not top:
        longer = {
            tuple(text[i : i + len(history) + 2]) for i in range(len(text) - len(history) - 1)
        }
        # What precedes is counted in the texts of the highest order.
        grams = [gram[1:] for gram in longer]
    counts = Counter(grams)
    once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
    discount = once / (once + 2 * twice) if once else 0.5
    lower = by_dictionary(text, history[1:], symbol, order) if len(history) else 1 / 256
    followers = {gram: count for gram, count in counts.items() if gram[:-1] == tuple(history)}
    total = sum(followers.values())
    if not total:
        return lower
    seen = max(followers.get((*history, symbol), 0) - discount, 0)
    return (seen + discount * len(followers) * lower) / total


def test_a_trigram_by_dictionary():
    text = np.random.default_rng(0).integers(0, 5, 300).astype(np.uint8)
    orders = ngrams.fit_kneser_ney(text, 3)
    for history, symbol in (((0, 1), 2), ((4, 4), 4), ((3, 9), 1), ((9, 9), 7), ((2, 0), 250)):
        key = ngrams.windows(np.array([*history, symbol], np.uint8), 3)
        expected = by_dictionary(text.tolist(), history, symbol, 3)
        assert ngrams.kneser_ney(orders, key)[0] == pytest.approx(expected, rel=1e-12)


def test_add_one_by_hand():
    # After "aba" the pair ab was seen once, and a once with a follower.
    nats = ngrams.add_one_nats(as_bytes(b"aba"), as_bytes(b"b"), order=2)
    assert nats == pytest.approx(-math.log((1 + 1) / (1 + 256)))


def test_validation_remembers_the_end_of_training():
    nats = ngrams.kneser_ney_nats(as_bytes(b"xaxbxa" * 20), as_bytes(b"x"), order=3)
    assert nats < 0.1  # after "xa" always x


@pytest.mark.parametrize("order", [0, 9])
def test_an_order_that_no_integer_holds(order):
    with pytest.raises(ValueError, match="order must be 1 to 8"):
        ngrams.fit_kneser_ney(as_bytes(b"abcabcabcabc"), order)


def test_a_text_shorter_than_the_order():
    with pytest.raises(ValueError, match="at least order = 4 bytes, got 3"):
        ngrams.fit_kneser_ney(as_bytes(b"abc"), 4)
