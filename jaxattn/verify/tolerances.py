"""Every tolerance of the toolkit, as a multiple of the unit roundoff u, with its reason.

u is 2^-53 = 1.1e-16 in float64 and 2^-24 = 6e-8 in float32. Errors are relative to the largest
number of what is compared unless a check says otherwise. A bug of order one is 10^4 times
larger than the widest of these in float32 and 10^10 times in float64.
"""

from __future__ import annotations

from typing import NamedTuple


class Tolerance(NamedTuple):
    """An allowed relative error, `multiple` times u, and why that much."""

    multiple: float
    reason: str


EXACT = Tolerance(0.0, "exact: no arithmetic stands between the two, so no rounding")
FEW = Tolerance(32.0, "32 u: a short sum of weights that are each right to a few u")
SUM = Tolerance(64.0, "64 u of the sum of absolute values: the order of a sum is free")
VALUE = Tolerance(900.0, "900 u (1e-13 in float64): two ways to the same value, each some 10 u off")
DERIVATIVE = Tolerance(
    9e3, "9e3 u (1e-12 in float64): products of three or four rounded factors, cancelling sums"
)
CONDITIONED = Tolerance(
    9e4, "9e4 u (1e-11 in float64): the change of basis multiplies errors by its condition number"
)
DIFFERENCE = Tolerance(
    1e8, "1e8 u (1e-8 in float64): a fourth-order difference is exact to about u^(4/5)"
)
RATE = Tolerance(0.0, "a remainder must fall at the rate that Taylor's theorem gives, less 0.1")
STATISTIC = Tolerance(0.0, "4 standard errors: a false alarm once in 16,000 draws")
