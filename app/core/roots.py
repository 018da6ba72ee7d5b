"""The root of a function, without scipy.optimize, whose import takes a third of a start."""

from collections.abc import Callable

_TOLERANCE = 1e-12


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns a root between two arguments at which the function has different signs.

    Bisection, to an error of 1e-12, relative where the root is above 1. The function is not
    negative at the returned argument.
    """
    rises = function(low) < 0.0
    while high - low > _TOLERANCE * max(1.0, high):
        middle = 0.5 * (low + high)
        if (function(middle) < 0.0) == rises:
            low = middle
        else:
            high = middle
    return high if rises else low
