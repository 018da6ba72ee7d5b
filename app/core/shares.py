"""Bounds on a share that was observed."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from app.core.preference import FloatArray


class Share(NamedTuple):
    """A share with its interval."""

    value: float
    low: float
    high: float


def weighted_share(
    cases: FloatArray, weight: FloatArray, unit: NDArray[np.int64], *, level: float
) -> Share:
    """Returns a share by Wilson's interval with the effective number of observations.

    Args:
        cases: Shape (n,), n at least 1. 1 where the observation is a case, otherwise 0.
        weight: Shape (n,). One over the probability with which each was drawn.
        unit: Shape (n,). Observations of one unit may depend on each other.
        level: Probability that the interval covers the true share.
    """
    value = float(weight @ cases / weight.sum())
    variance = variance_of_mean(cases - value, weight, unit)
    kish = float(weight.sum() ** 2 / (weight @ weight))
    # If all observations are cases, or none is, they show no variance.
    shows_variance = 0.0 < variance < math.inf
    effective = min(kish, value * (1.0 - value) / variance) if shows_variance else kish
    z = float(ndtri(0.5 + level / 2.0))
    center = (value + z**2 / (2 * effective)) / (1 + z**2 / effective)
    reach = z * np.sqrt(value * (1 - value) / effective + z**2 / (4 * effective**2))
    reach = float(reach) / (1 + z**2 / effective)
    return Share(value, max(center - reach, 0.0), min(center + reach, 1.0))


def variance_of_mean(residual: FloatArray, weight: FloatArray, unit: NDArray[np.int64]) -> float:
    """Returns the variance of a weighted mean over dependent units; infinite with one unit.

    Args:
        residual: Shape (n,). Observations less their weighted mean.
        weight: Shape (n,).
        unit: Shape (n,). Number of the unit of each observation.
    """
    names, places = np.unique(unit, return_inverse=True)
    units = len(names)
    if units == 1:
        return math.inf
    total = np.bincount(places, weight * residual)
    return float(total @ total / weight.sum() ** 2) * units / (units - 1)
