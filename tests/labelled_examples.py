"""Labelled examples for tests, in one line each."""

from app.core.calibration import LabelledExample
from app.core.comparison import Label
from app.core.score import Score


def labelled_example(
    gap_fwd: float,
    gap_rev: float,
    label_mass: float,
    label: Label | None,
    question: str | None = None,
) -> LabelledExample:
    score = Score(gap_fwd=gap_fwd, gap_rev=gap_rev, label_mass=label_mass)
    return LabelledExample(score=score, label=label, question=question)
