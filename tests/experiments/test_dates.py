"""Dates as pairs: seen and unseen days, tokens and back."""

import datetime

import numpy as np
import pytest

pytest.importorskip("babel", reason="pip install 'jaxattn[experiments]'")

from experiments import dates  # noqa: E402

SHORT = dict(locales=("en", "lv"), styles=("long",))


def test_days_of_training_and_test_share_none_and_are_all():
    train, test = dates.days(True), dates.days(False)
    assert len(train) == 32872 and len(test) == 3653
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(dates.DAYS))


def test_a_text_says_its_day():
    texts = dates.draw(30, False, seed=0, **SHORT)
    allowed = set(dates.days(False).tolist())
    for written, iso in zip(*texts, strict=True):
        day = datetime.date.fromisoformat(iso)
        assert (day - dates.FIRST).days in allowed
        english = f"{day:%B} {day.day}, {day.year}"
        assert written == english or (f"{day.year}. gada {day.day}. " in written)


def test_two_dates_keep_their_order():
    texts = dates.draw(20, True, seed=0, dates=2, locales=("en",), styles=("medium",))
    for written, iso in zip(*texts, strict=True):
        for text, day in zip(written.split(" / "), iso.split(" "), strict=True):
            assert f"{datetime.datetime.strptime(text, '%b %d, %Y'):%Y-%m-%d}" == day


def test_the_same_seed_draws_the_same():
    assert dates.draw(5, True, seed=1, **SHORT) == dates.draw(5, True, seed=1, **SHORT)
    assert dates.draw(5, True, seed=1, **SHORT) != dates.draw(5, True, seed=2, **SHORT)


def test_no_text_means_two_days():
    """In all locales and styles, on days whose numbers could be taken for each other."""
    found = {}
    for day in (
        datetime.date(2011, month, day) for month in (3, 10, 11, 12) for day in (3, 10, 11)
    ):
        for locale in dates.LOCALES:
            for style in dates.STYLES:
                text = dates.format_date(day, style, locale=locale)
                assert found.setdefault(text, day) == day and len(text) <= 40
    assert len(dates.LOCALES) == len(set(dates.LOCALES)) == 50


def test_tokens_and_back():
    texts = dates.Texts(["3 May 1999", "12 July 2001"], ["1999-05-03", "2001-07-12"])
    characters = dates.alphabet(texts.written)
    pairs = dates.tokens(texts, characters, 14)
    assert pairs.source.shape == (2, 14) and pairs.target.shape == (2, 12)
    assert pairs.lengths.tolist() == [10, 12] and (pairs.source[0, 10:] == dates.PAD).all()
    read = ["".join(characters[t - dates.SPECIAL] for t in row if t) for row in pairs.source]
    assert read == texts.written
    assert [dates.as_text(row[1:]) for row in pairs.target] == texts.iso
    assert (pairs.target[:, 0] == dates.START).all() and (pairs.target[:, -1] == dates.END).all()


def test_texts_that_do_not_fit():
    texts = dates.Texts(["3 May 1999"], ["1999-05-03"])
    with pytest.raises(ValueError, match="at most 9 characters .* got 10"):
        dates.tokens(texts, dates.alphabet(texts.written), 9)
    with pytest.raises(ValueError, match="'My'"):
        dates.tokens(texts, " 0123456789a", 10)


def test_what_is_no_date_is_shown():
    assert dates.as_text(np.array([dates.SPECIAL + 2, dates.PAD, dates.START])) == "2??"
