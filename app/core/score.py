"""The score of a comparison, and the preference made of it."""

from dataclasses import dataclass
from typing import Literal

Side = Literal["A", "B"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One judge's preference between two responses, measured in both orders; it holds no text.

    Labelled examples, judged comparisons and draws embed it.

    Args:
        gap_fwd: Logit of response_a minus logit of response_b, with response_a shown first; any
            finite number.
        gap_rev: The same with response_a shown second; equal to gap_fwd for a kind of judge that
            sees no order.
        label_mass: Share of the whole vocabulary's probability on the two labels, in [0, 1]; the
            smaller one of the two orders. 1 for a kind of judge that can give no other answer.
    """

    gap_fwd: float
    gap_rev: float
    label_mass: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference:
    """The preference of a judge on one comparison; `core.preference` makes it of a score.

    Args:
        p_fwd: Probability of response_a when it is shown first.
        p_rev: Probability of response_a when it is shown second.
        p_bar: Mean of p_fwd and p_rev; exactly 0.5 where the judge has no preference.
        uncertainty: s(x), the entropy of p_bar, in nats within [0, ln 2] (SCOPE, section on BPE).
    """

    p_fwd: float
    p_rev: float
    p_bar: float
    uncertainty: float

    @property
    def confidence(self) -> float:
        """max(p_bar, 1 - p_bar), within [0.5, 1]."""
        return max(self.p_bar, 1.0 - self.p_bar)

    @property
    def side(self) -> Side | None:
        """The preferred side; None at exactly 0.5, where every threshold abstains."""
        if self.p_bar == 0.5:
            return None
        return "A" if self.p_bar > 0.5 else "B"

    @property
    def position_gap(self) -> float:
        """Effect of the order of the responses: |p_fwd - p_rev|."""
        return abs(self.p_fwd - self.p_rev)

    @property
    def orders_disagree(self) -> bool:
        """Whether the two orders prefer different responses; False if one prefers none."""
        return (self.p_fwd - 0.5) * (self.p_rev - 0.5) < 0.0
