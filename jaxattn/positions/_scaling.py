"""Slower rotations, for contexts longer than those trained on. Letters: see `jaxattn._typing`.

A scaling is a function of the R/2 rates (radians per position) to other rates, in float64 NumPy;
its `amplitude` multiplies rotated queries and keys alike.
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """Every rate divided by `factor`: positions are squeezed into the trained context.

    Args:
      factor: how many times longer the context becomes, above 0.

    Raises:
      ValueError: the factor is not above 0.

    Example:
      >>> import numpy as np
      >>> from jaxattn.positions import LinearScaling
      >>> print(LinearScaling(4.0)(np.array([1.0, 0.1])))
      [0.25  0.025]

    Source: Chen et al. 2023, "Extending context window of large language models via positional
      interpolation", section 2.3.
    """

    factor: float
    amplitude = 1.0

    def __post_init__(self) -> None:
        positive(factor=self.factor)

    def __call__(self, rates: np.ndarray) -> np.ndarray:
        """Rates over the factor."""
        return rates / self.factor


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Long waves are stretched, short ones kept, and those between blended.

    With wavelength w = 2π / rate and the trained context c, the blend

        s = clip((c / w - low) / (high - low), 0, 1),   rate' = (1 - s) rate / factor + s rate

    Args:
      factor: how far long waves are stretched, above 0.
      low: waves that fit fewer times than this into the context are stretched in full.
      high: waves that fit more often than this are kept; above `low`.
      context: c, the trained context.

    Raises:
      ValueError: a number is not above 0, or high is not above low.

    Example:
      >>> import numpy as np
      >>> from jaxattn.positions import Llama3Scaling
      >>> print(Llama3Scaling(8.0)(np.array([1.0, 1e-4])))
      [1.00e+00 1.25e-05]

    Source: Llama Team 2024, "The Llama 3 herd of models", section 3.4.1, and the models' published
      code (the blend).
    """

    factor: float
    low: float = 1.0
    high: float = 4.0
    context: int = 8192
    amplitude = 1.0

    def __post_init__(self) -> None:
        positive(factor=self.factor, low=self.low, context=self.context)
        if not self.high > self.low:
            raise ValueError(f"high must be above low = {self.low}, got {self.high}")

    def __call__(self, rates: np.ndarray) -> np.ndarray:
        """Blended rates."""
        turns = self.context * rates / (2 * math.pi)
        share = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return (1 - share) * rates / self.factor + share * rates


@dataclasses.dataclass(frozen=True)
class YarnScaling:
    """YaRN: a blend that is linear in the feature pair, and sharper attention.

    Pair i makes `context · rate / 2π` turns in the trained context. Pairs up to the one that makes
    `fast` turns are kept, those from the one that makes `slow` turns are stretched in full, with a
    linear ramp in i between both; and the amplitude is √(1 + 0.1 log factor)², split over query
    and key.

    Args:
      factor: how many times longer the context becomes, at least 1.
      context: the trained context.
      fast: turns; default 32.
      slow: turns, below `fast`; default 1.

    Raises:
      ValueError: the factor is below 1, slow is not below fast, or a number is not above 0.

    Example:
      >>> import numpy as np
      >>> from jaxattn.positions import YarnScaling
      >>> rates = 10000.0 ** -np.array([0, 0.25, 0.5, 0.75])
      >>> print(YarnScaling(4.0, context=4096)(rates) / rates)
      [1.    1.    0.625 0.25 ]

    Source: Peng et al. 2023, "YaRN: efficient context window extension of large language models",
      sections 3.2 to 3.4, with whole pairs as borders of the ramp as in their published code.
    """

    factor: float
    context: int
    fast: float = 32.0
    slow: float = 1.0

    def __post_init__(self) -> None:
        positive(context=self.context, slow=self.slow)
        if not self.factor >= 1:
            raise ValueError(f"factor must be at least 1, got {self.factor}")
        if not self.fast > self.slow:
            raise ValueError(f"fast must be above slow = {self.slow}, got {self.fast}")

    @property
    def amplitude(self) -> float:
        """`1 + 0.1 log factor`, of both queries and keys."""
        return 1 + 0.1 * math.log(self.factor)

    def __call__(self, rates: np.ndarray) -> np.ndarray:
        """Blended rates."""
        pairs = np.arange(len(rates))
        turns = self.context * rates / (2 * math.pi)
        first = _pair_of(turns, self.fast, math.floor)
        last = _pair_of(turns, self.slow, math.ceil)
        share = np.clip((pairs - first) / max(last - first, 1e-3), 0, 1)
        return (1 - share) * rates + share * rates / self.factor


def _pair_of(turns, wanted, rounded):
    """The pair that makes so many turns: turns fall geometrically from pair to pair."""
    if len(turns) < 2:
        return 0
    fall = math.log(turns[0] / turns[1])
    pair = rounded(math.log(turns[0] / wanted) / fall)
    return min(max(pair, 0), 2 * len(turns) - 1)


def positive(**numbers: float) -> None:
    """Every number is above 0."""
    for name, x in numbers.items():
        if not x > 0:
            raise ValueError(f"{name} must be above 0, got {x}")
