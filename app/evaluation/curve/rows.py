"""Coverage and risk of each alpha under both guarantees, on the labeled pairs of a file."""

from collections.abc import Sequence

from app.core.assessment import Assessment
from app.core.calibration import GUARANTEES
from app.core.comparison import Guarantee
from app.core.diagnostics import feasible_alphas, more_examples
from app.core.threshold_rows import row_of, threshold_on
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labeled_scores import LabeledScores
from scope_judge.records import Infeasible, Threshold


def assessment_of(
    scores: LabeledScores,
    alphas: Sequence[float],
    *,
    delta: float,
) -> Assessment:
    """The figures of a judge, with a row for each guarantee and alpha.

    Args:
        scores: Scores of a judge on labeled pairs.
        alphas: Levels, each in (0, 1).
        delta: Level of "pac", in (0, 1).
    """
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error)

    rows = threshold_rows(scores, alphas, delta=delta)
    return Assessment(
        n=scores.n,
        accuracy=scores.accuracy,
        auroc=scores.auroc,
        position_flips=scores.position_flips,
        rows=rows,
        infeasible=[
            Infeasible(
                alpha=row.alpha,
                guarantee=row.guarantee,
                delta=row.delta,
                more_examples=more_examples(curve, row.alpha, row.guarantee, row.delta),
            )
            for row in rows
            if not row.feasible
        ],
        feasible={each: feasible_alphas(curve, each, delta) for each in GUARANTEES},
    )


def threshold_rows(
    scores: LabeledScores, alphas: Sequence[float], *, delta: float
) -> list[Threshold]:
    """A row for each guarantee and alpha, in that order; arguments as for `assessment_of`."""
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error)

    def row(alpha: float, guarantee: Guarantee) -> Threshold:
        threshold = threshold_on(curve, alpha, guarantee, delta)
        accepted, errors = curve.accepted_at(threshold, undecided=scores.undecided)
        return row_of(
            threshold,
            alpha=alpha,
            guarantee=guarantee,
            delta=delta if guarantee == "pac" else None,
            accepted=accepted,
            errors=errors,
            n=curve.n,
        )

    return [row(alpha, guarantee) for guarantee in GUARANTEES for alpha in alphas]
