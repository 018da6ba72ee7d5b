"""Worlds of people who flip labels, in which the mean noise is 0.10."""

from collections.abc import Callable

import numpy as np

from app.core.preference import FloatArray

# The uncertainty of pairs -> the probability with which a person flips the label of each.
Flips = Callable[[FloatArray], FloatArray]


def _certainty(uncertainty: FloatArray) -> FloatArray:
    """The share of the pairs that are at most as uncertain, in (0, 1)."""
    ranks = np.argsort(np.argsort(uncertainty))
    return np.asarray((ranks + 0.5) / len(uncertainty))


WORLDS: dict[str, Flips] = {
    "even": lambda uncertainty: np.full(len(uncertainty), 0.1),
    "rising": lambda uncertainty: 0.2 * _certainty(uncertainty),
    "rising late": lambda uncertainty: 0.4 * _certainty(uncertainty) ** 3,
    "hardest third": lambda uncertainty: np.where(_certainty(uncertainty) > 2 / 3, 0.3, 0.0),
    "none": lambda uncertainty: np.zeros(len(uncertainty)),
}
