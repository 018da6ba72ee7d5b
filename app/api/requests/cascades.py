"""JSON of the plan of a cascade: the scores of both judges on pairs without labels."""

from typing import Annotated

from pydantic import Field

from app.api.requests.models import Digest, DryRun, Probability, Strict
from app.api.requests.scored_examples import NumbersIn
from app.core.cascade import FEWEST_PAIRS, PlannedPairs

# Their uncertainties and contradictions take a few milliseconds.
_MOST_PAIRS = 20_000


class BothScoresIn(Strict):
    """The scores of both judges of a cascade on one pair."""

    small: NumbersIn = Field(description="The score of the small judge.")
    large: NumbersIn = Field(description="The score of the large judge.")


class CascadePlanIn(Strict):
    """Scores on pairs without labels, from which a cascade takes what it fixes in advance."""

    small: Digest = Field(description="Fingerprint of the small judge.")
    large: Digest = Field(description="Fingerprint of the large judge.")
    alpha: Probability = Field(description="The alpha that the cascade is for.")
    share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="r, if you choose it; null for the rule."
    )
    dry_run: DryRun = False
    pairs: Annotated[list[BothScoresIn], Field(min_length=FEWEST_PAIRS, max_length=_MOST_PAIRS)] = (
        Field(description="The scores of at least 1,000 pairs, which are not the labeled ones.")
    )

    def planned(self, min_label_mass: float) -> PlannedPairs:
        """The pairs as the plan needs them."""
        small, large = (
            [(score.gap_fwd, score.gap_rev, score.label_mass) for score in scores]
            for scores in zip(*((pair.small, pair.large) for pair in self.pairs), strict=True)
        )
        return PlannedPairs.of(small, large, min_label_mass)
