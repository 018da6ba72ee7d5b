"""Checks that a judgment agrees with the calibration that it names."""

import math
from typing import Any, NamedTuple


class Ground(NamedTuple):
    """The calibration that a judgment rests on, by its own fields."""

    calibration: str
    version: int
    n: int
    threshold: float | None


def ground_of(judgment: dict[str, Any]) -> Ground:
    """The calibration that a judgment names, with the threshold that it used."""
    named = judgment["calibration"]
    return Ground(named["name"], named["version"], named["n"], judgment["threshold"])


def same_threshold(a: float | None, b: float | None) -> bool:
    """Whether two thresholds are equal up to the rounding of the last bits of the logits."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def fault_of(judgment: dict[str, Any], *, p_bar: float) -> str | None:
    """The inconsistency within a judgment of a pair with this p_bar; None if there is none."""
    found, threshold = judgment["p_bar"], judgment["threshold"]
    uncertainty = judgment["uncertainty"]
    if abs(found - p_bar) > 1e-9:
        return f"p_bar is {found}, but the judge's is {p_bar}"
    if abs(uncertainty - _entropy(found)) > 1e-6:
        return f"uncertainty {uncertainty} at p_bar {found}"
    implied: tuple[str, str | None]
    preferred = None if found == 0.5 else "A" if found > 0.5 else "B"
    if preferred is None:
        implied = ("abstain", "no_preference")
    elif threshold is None:
        implied = ("abstain", "infeasible")
    elif uncertainty > threshold:
        implied = ("abstain", "uncertain")
    else:
        implied = (preferred, None)
    said = (judgment["verdict"], judgment["reason"])
    if said != implied:
        return f"{said} where threshold {threshold} and uncertainty {uncertainty} imply {implied}"
    return None


def _entropy(p: float) -> float:
    return -sum(x * math.log(x) for x in (p, 1 - p) if x > 0)
