"""Random numbers of the drift, from a seed."""

from functools import partial

import pytest

from app.audits.drift import Drift
from app.wiring import services


def seed_drift() -> None:
    """Lets services of this process draw the random numbers of their drift from a seed.

    Drift raises a false alarm, rarely. A test that expects none, or counts from the last alarm,
    would then fail.
    """
    pytest.MonkeyPatch().setattr(services, "Drift", partial(Drift, seed=1))
