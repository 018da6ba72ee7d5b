"""The temperature of a judge whose gaps are on no known scale, such as those of a reward model.

A logistic regression through 0 with one number (Platt 1999): a label prefers response_a with
probability sigmoid(gap / temperature). Dividing all gaps by one number changes no rank, and so
neither which judgments a threshold accepts nor any guarantee.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from app.core.binomial import root
from app.core.preference import FloatArray

# Digits of a temperature: replicas add the same numbers up in different orders.
_DIGITS = 4


def fitted_temperature(gap: FloatArray, label_a: NDArray[np.bool_]) -> float:
    """Fits the temperature to labeled gaps.

    Args:
        gap: Shape (n,). Gap of response_a minus response_b, finite.
        label_a: Shape (n,). True where people prefer response_a.

    Returns:
        A positive number with four significant digits. 1 where no positive temperature fits: a
        larger gap then does not mean a likelier verdict.
    """
    size = np.abs(gap)
    right = np.where(label_a, gap > 0, gap < 0)
    # Platt's targets keep the slope finite if all verdicts are right.
    rights, wrongs = int(right.sum()), int((~right).sum())
    target = np.where(right, (rights + 1) / (rights + 2), 1 / (wrongs + 2))
    scale = float(size.mean()) if len(size) else 0.0
    if not scale > 0.0:
        return 1.0
    size = size / scale

    def slope_of_likelihood(slope: float) -> float:
        return float((size * (target - expit(size * slope))).sum())

    if slope_of_likelihood(0.0) <= 0.0:
        return 1.0
    # It falls with the slope, and ends below 0, because every target is below 1.
    largest = 1.0
    while slope_of_likelihood(largest) > 0.0:
        largest *= 2.0
    slope = root(slope_of_likelihood, 0.0, largest)
    return float(f"{scale / slope:.{_DIGITS}g}")
