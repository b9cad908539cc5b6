"""Dates as people write them in 50 locales, and as ISO 8601 writes them.

Texts come from `babel`, which carries the tables of Unicode's CLDR. A model sees characters alone:
neither the locale nor the style. Days of the training set and of the test set are different ones.
"""

import datetime
from typing import Any, NamedTuple

import numpy as np

try:
    from babel.dates import format_date
except ModuleNotFoundError as missing:
    told = 'dates in 50 languages need Babel: pip install "jaxattn[experiments]"'
    raise ModuleNotFoundError(told, name="babel") from missing

# In Latin script, with four digits of the year, and together without a text that means two days.
LOCALES = tuple(
    "af ast az bs ca cs cy da de en eo es et eu fi fil fo fr fy ga gl hr hu id is it lb lt lv ms "
    "mt nb nds nl pl pt rm ro sk sl so sq sv sw tk tr uz vi xh zu".split()
)
STYLES = ("medium", "long", "full")
FIRST, DAYS = datetime.date(1950, 1, 1), 36525  # a hundred years
PAD, START, END = 0, 1, 2
SPECIAL = 3
ISO = "0123456789- "
TARGETS = SPECIAL + len(ISO)


class Texts(NamedTuple):
    """Dates as written, and in ISO 8601."""

    written: list[str]
    iso: list[str]


class Pairs(NamedTuple):
    """The same as tokens: `source [n, S]`, its `lengths [n]`, and `target [n, L + 2]`.

    A target is START, L characters and END. The arrays are NumPy's or JAX's.
    """

    source: Any
    lengths: Any
    target: Any


def days(train: bool, seed: int = 0) -> np.ndarray:
    """Nine tenths of the hundred years' days, or the others."""
    shuffled = np.random.default_rng(seed).permutation(DAYS)
    return shuffled[: DAYS * 9 // 10] if train else shuffled[DAYS * 9 // 10 :]


def draw(
    count: int,
    train: bool,
    seed: int,
    dates: int = 1,
    locales: tuple[str, ...] = LOCALES,
    styles: tuple[str, ...] = STYLES,
) -> Texts:
    """Texts with so many dates each, each date in a locale and a style of its own."""
    rng, allowed = np.random.default_rng(seed), days(train)
    written, iso = [], []
    for _ in range(count):
        sizes = [len(allowed), len(locales), len(styles)]
        places = rng.integers(0, sizes, (dates, len(sizes)))
        drawn = [FIRST + datetime.timedelta(int(allowed[day])) for day, _, _ in places]
        texts = [
            format_date(day, styles[style], locale=locales[locale])
            for day, (_, locale, style) in zip(drawn, places, strict=True)
        ]
        written.append(" / ".join(texts))
        iso.append(" ".join(day.isoformat() for day in drawn))
    return Texts(written, iso)


def alphabet(written: list[str]) -> str:
    """Every character of the texts, once, in order."""
    return "".join(sorted(set("".join(written))))


def tokens(texts: Texts, characters: str, length: int) -> Pairs:
    """Characters as integers from SPECIAL on, sources padded to `length`.

    Raises:
      ValueError: a text is longer, or has a character that is not among `characters`.
    """
    number = {character: SPECIAL + place for place, character in enumerate(characters)}
    unknown = sorted(set("".join(texts.written)) - set(characters))
    longest = max(map(len, texts.written))
    if unknown or longest > length:
        raise ValueError(
            f"texts must have at most {length} characters of {characters!r}, got {longest} and "
            f"{''.join(unknown)!r}"
        )
    source = np.full((len(texts.written), length), PAD, np.int32)
    for row, text in zip(source, texts.written, strict=True):
        row[: len(text)] = [number[character] for character in text]
    target = [[START, *(SPECIAL + ISO.index(c) for c in text), END] for text in texts.iso]
    lengths = np.array([len(text) for text in texts.written], np.int32)
    return Pairs(source, lengths, np.array(target, np.int32))


def as_text(row: np.ndarray) -> str:
    """What a model wrote, up to the end token."""
    written = [int(token) for token in row]
    written = written[: written.index(END)] if END in written else written
    return "".join(ISO[token - SPECIAL] if token >= SPECIAL else "?" for token in written)
