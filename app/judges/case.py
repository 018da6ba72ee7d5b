"""A comparison on its way through the judge; recent traffic and audits see it before its answer."""

from dataclasses import KW_ONLY, dataclass

from app.core.calibration import Calibration
from app.core.comparison import Comparison, Criterion, Judgment
from app.core.errors import ScopeJudgeError
from app.core.preference import NoScore, Preference, Score


@dataclass(slots=True, eq=False)
class Case:
    """A comparison with what decides it, and what came of it.

    Args:
        criterion: The alpha, guarantee and calibration set to decide it by.
        by: Name of the key that asked, or "service".
        calibration: The version of the set that decides; None without an alpha.
        age_s: Seconds since the store last confirmed the version; 0 while the store answers.
        threshold: Largest accepted uncertainty in nats; -inf if alpha is infeasible, None without
            an alpha. For a cascade, it is the large judge's.
        suspended: Whether nothing is accepted, because audits have raised an alarm.
        score: Its score, or the reason why it has none.
        preference: The preference by its score.
        outcome: Its judgment or its error; None until it has one.
    """

    comparison: Comparison
    criterion: Criterion
    _: KW_ONLY
    by: str = "service"
    calibration: Calibration | None = None
    age_s: float = 0.0
    threshold: float | None = None
    suspended: bool = False
    score: Score | NoScore | None = None
    preference: Preference | None = None
    outcome: Judgment | ScopeJudgeError | None = None

    @property
    def judgment(self) -> Judgment:
        """The judgment of a case that has one."""
        assert isinstance(self.outcome, Judgment), "only judgments are observed"
        return self.outcome
