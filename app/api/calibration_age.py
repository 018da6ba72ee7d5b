"""The header that says how old the thresholds of an answer are, while the store is away."""

import math
from collections.abc import Iterable
from typing import Any

from app.core.comparison import Judgment

AGE_HEADER = "Scope-Calibration-Age"
AGED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            AGE_HEADER: {
                "description": "Age of the thresholds: seconds since the calibration store last "
                "confirmed them. Sent only while the store does not answer.",
                "schema": {"type": "integer"},
            }
        }
    }
}


def age_headers(judgments: Iterable[Judgment]) -> dict[str, str]:
    """The header with the age of the oldest calibration, if the store has not confirmed one."""
    ages = (judgment.calibration.age_s for judgment in judgments if judgment.calibration)
    oldest = max(ages, default=0.0)
    return {AGE_HEADER: str(math.ceil(oldest))} if oldest > 0 else {}
