"""A judged comparison, as recent traffic and audits see it."""

from dataclasses import dataclass

from app.core.calibration import Calibration
from app.core.comparison import Comparison, Judgment
from app.core.score import NoScore, Score


@dataclass(kw_only=True, slots=True)
class JudgedComparison:
    """A comparison whose judgment is not answered yet; an audit may be named in the judgment.

    Args:
        comparison: The comparison.
        score: Its score, or the reason why it has none.
        judgment: Its judgment.
        calibration: The version of the set that decided; None without an alpha.
        by: Name of the key that asked, or "service".
    """

    comparison: Comparison
    score: Score | NoScore
    judgment: Judgment
    calibration: Calibration | None
    by: str
