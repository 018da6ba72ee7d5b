"""Labeled examples and calibration sets for tests, in one line each."""

from collections.abc import Mapping
from typing import Any

from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Label
from app.core.preference import Score


def labeled_example(
    gap_fwd: float,
    gap_rev: float | None,
    label_mass: float | None,
    label: Label | None,
    question: str | None = None,
) -> LabeledExample:
    score = Score(gap_fwd=gap_fwd, gap_rev=gap_rev, label_mass=label_mass)
    return LabeledExample(score=score, label=label, question=question)


def calibration_of(examples: Mapping[str, LabeledExample], **fields: Any) -> Calibration:
    """A set with these examples by digest, at version 1 unless a field says otherwise."""
    made: dict[str, Any] = {
        "name": "default",
        "write_id": "w1",
        "version": 1,
        "judge": "demo",
        "fingerprint": "f" * 64,
    }
    return Calibration(**{**made, **fields}, examples=examples)
