"""Labels that count at once, although further draws of their questions could still come."""

import math

import pytest

from app.audits import figures


def complete_questions() -> None:
    """Lets the monitor of this process count labels before the hour of their question is over."""
    pytest.MonkeyPatch().setattr(figures, "QUESTION_S", -math.inf)
