"""Pairs of a set that a second person labels, so that the noise of its labels is known.

People err more on hard pairs, where the judge is unsure. The noise among the pairs that a threshold
accepts is therefore below the mean noise, and a label noise above it breaks the promise. So the
second labels are of the pairs on which the judge is most certain.
"""

import math
from collections.abc import Mapping
from typing import Any

from app.core.examples import Examples, LabelledExample
from app.core.score import Score
from app.service.labelling.session import LabelSession

# The share of the labelled pairs, by rising uncertainty, that second labels are drawn from.
SUREST = 0.25
_SCORE_FIELDS = ("gap_fwd", "gap_rev", "label_mass")


def uncertainties(scores: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float]:
    """Digest -> uncertainty in nats.

    Args:
        scores: Digest -> gap_fwd, gap_rev and label_mass of an example.
    """
    examples = Examples.of(
        {
            digest: LabelledExample(
                score=Score(**{name: each[name] for name in _SCORE_FIELDS}), label=None
            )
            for digest, each in scores.items()
        }
    )
    return dict(zip(examples, examples.preferences_at(1.0).entropy.tolist(), strict=True))


def surest(uncertainty: Mapping[str, float]) -> list[str]:
    """The digests of the surest quarter of labelled pairs.

    Args:
        uncertainty: Digest -> uncertainty in nats.
    """
    ordered = sorted(uncertainty, key=lambda digest: (uncertainty[digest], digest))
    return ordered[: math.ceil(SUREST * len(ordered))]


class SecondSession(LabelSession):
    """One person who labels pairs that have a label already, without seeing it."""

    @property
    def head(self) -> str:
        """How far the person is, in a line."""
        done = len(self._done)
        return f"pair {done + 1} of {done + len(self._waiting)}"
