"""The 1,797 handwritten digits that scikit-learn ships, 8 × 8 pixels, in folds."""

from typing import NamedTuple

import numpy as np

FOLDS = 5
CLASSES = 10
MEAN, DEVIATION = 0.3, 0.38  # of pixels from 0, paper, to 1, ink


class Split(NamedTuple):
    """Pictures `[B, 8, 8, 1]`, about 0 and of size 1, and their classes `[B]`."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """All digits and their classes, in the order of the data set.

    Raises:
      ModuleNotFoundError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as missing:
        name = "scikit-learn" if missing.name == "sklearn" else missing.name
        said = f"needs the package {name}, which is not installed; pip install {name}"
        raise ModuleNotFoundError(said, name=name) from None
    pixels, classes = load_digits(return_X_y=True)
    pixels = np.asarray(pixels, np.float32).reshape(-1, 8, 8, 1) / 16
    return (pixels - MEAN) / DEVIATION, np.asarray(classes, np.int32)


def fold(number: int, all_of_them: tuple[np.ndarray, np.ndarray]) -> Split:
    """Fold `number` of 5 is for testing: over all folds every digit is tested once."""
    held = np.random.default_rng(0).permutation(len(all_of_them[1])) % FOLDS == number
    x, y = all_of_them
    return Split((x[~held], y[~held]), (x[held], y[held]))
