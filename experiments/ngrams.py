"""n-gram models of bytes: what counting alone predicts, for a language model to beat.

Interpolated Kneser-Ney, with h the n - 1 bytes before w and h' the same without its first:

    p_n(w | h) = max(c(h w) - D_n, 0) / c(h ·) + D_n N(h ·) / c(h ·) · p_{n-1}(w | h')

c counts at the highest order; below it counts how many different bytes precede (h w), since a
lower order is asked only where the higher one has not seen the pair. N(h ·) is the number of
different bytes after h, D_n = n1 / (n1 + 2 n2) with n1, n2 the n-grams counted once and twice, and
p_0 = 1/256. A context never seen hands over to p_{n-1}.

Sources: Kneser and Ney 1995; Ney, Essen and Kneser 1994 (D); Chen and Goodman 1999 (interpolated).
"""

from typing import NamedTuple

import numpy as np

SYMBOLS = 256
LARGEST_ORDER = 8  # n bytes in one 64-bit integer


class Order(NamedTuple):
    """The counts of one order, as sorted integers whose base-256 digits are the bytes."""

    ngrams: np.ndarray  # h w
    counts: np.ndarray  # c(h w)
    contexts: np.ndarray  # h
    totals: np.ndarray  # c(h ·)
    kinds: np.ndarray  # N(h ·)
    discount: float


def add_one_nats(train: np.ndarray, validation: np.ndarray, order: int) -> float:
    """Nats per byte of `p(w | h) = (c(h w) + 1) / (c(h ·) + 256)`."""
    ngrams, counts = np.unique(windows(train, order), return_counts=True)
    contexts, totals = np.unique(windows(train[:-1], order - 1), return_counts=True)
    asked = validation_ngrams(train, validation, order)
    count, total = lookup(ngrams, counts, asked), lookup(contexts, totals, asked // SYMBOLS)
    return float(-np.mean(np.log((count + 1) / (total + SYMBOLS))))


def kneser_ney_nats(train: np.ndarray, validation: np.ndarray, order: int) -> float:
    """Nats per byte of interpolated Kneser-Ney of this order."""
    asked = validation_ngrams(train, validation, order)
    return float(-np.mean(np.log(kneser_ney(fit_kneser_ney(train, order), asked))))


def fit_kneser_ney(tokens: np.ndarray, order: int) -> list[Order]:
    """The counts of orders 1 to `order`, lowest first.

    Raises:
      ValueError: the order is not 1 to 8, or the text is shorter than it.
    """
    if not 1 <= order <= LARGEST_ORDER:
        raise ValueError(f"order must be 1 to {LARGEST_ORDER}, got {order}")
    if len(tokens) < order:
        raise ValueError(f"tokens must be at least order = {order} bytes, got {len(tokens)}")
    ngrams, counts = np.unique(windows(tokens, order), return_counts=True)
    fitted = [one_order(ngrams, counts)]
    for length in range(order - 1, 0, -1):
        # Dropping the first byte of each different n-gram counts the bytes that precede the rest.
        ngrams, counts = np.unique(ngrams % SYMBOLS**length, return_counts=True)
        fitted.append(one_order(ngrams, counts))
    return fitted[::-1]


def one_order(ngrams: np.ndarray, counts: np.ndarray) -> Order:
    """Totals, kinds and the discount from sorted n-grams with their counts."""
    contexts, starts, kinds = np.unique(ngrams // SYMBOLS, return_index=True, return_counts=True)
    once, twice = np.sum(counts == 1), np.sum(counts == 2)
    # Without n-grams counted once the estimate says 0, and unseen bytes would be impossible.
    discount = once / (once + 2 * twice) if once else 0.5
    totals = np.add.reduceat(counts, starts)
    return Order(ngrams, counts, contexts, totals, kinds, float(discount))


def kneser_ney(orders: list[Order], asked: np.ndarray) -> np.ndarray:
    """p(w | h) of each n-gram `h w`, given as one integer, n the highest order."""
    probability = np.full(len(asked), 1 / SYMBOLS)
    for length, order in enumerate(orders, 1):
        ngram = asked % SYMBOLS**length if length < LARGEST_ORDER else asked
        context = ngram // SYMBOLS
        count = lookup(order.ngrams, order.counts, ngram)
        total = lookup(order.contexts, order.totals, context)
        kinds = lookup(order.contexts, order.kinds, context)
        lower = order.discount * kinds * probability
        seen = np.maximum(count - order.discount, 0) + lower
        probability = np.where(total > 0, seen / np.maximum(total, 1), probability)
    return probability


def windows(tokens: np.ndarray, length: int) -> np.ndarray:
    """Every `length` successive bytes as one integer; for 0 bytes, 0 at each place."""
    view = np.lib.stride_tricks.sliding_window_view(tokens, max(length, 1))
    ngrams = np.zeros(len(view), np.uint64)
    for place in range(length):
        ngrams = ngrams * np.uint64(SYMBOLS) + view[:, place]
    return ngrams


def validation_ngrams(train: np.ndarray, validation: np.ndarray, order: int) -> np.ndarray:
    """The n-gram that ends at each byte of the validation text, whose past is the training text."""
    return windows(np.concatenate([train[len(train) - order + 1 :], validation]), order)


def lookup(sorted_keys: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The value at each key, 0 where there is none."""
    place = np.minimum(np.searchsorted(sorted_keys, asked), len(sorted_keys) - 1)
    return np.where(sorted_keys[place] == asked, values[place], 0)
