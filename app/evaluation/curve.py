"""The answer of `scope-judge curve`: what a judge's scores on labeled pairs promise."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.core.assessment import Assessment
from app.core.calibration import GUARANTEES
from app.core.diagnostics import auroc, feasible_alphas, more_examples
from app.core.errors import InvalidRequestError
from app.core.pac import threshold_on
from app.core.preference import LN2, FloatArray
from app.core.thresholds import ThresholdCurve, row_of
from app.evaluation.judgments.jsonl import Judged
from app.evaluation.methods import METHODS, preferences_of
from app.files.checking import LabeledRow, LabelReport
from scope_judge.records import Infeasible, Threshold


@dataclass(frozen=True, kw_only=True, eq=False)
class LabeledScores:
    """The uncertainty and the error of a judge on labeled pairs.

    Args:
        uncertainty: Shape (n,). s(x) in nats, within [0, ln 2]; n is at least 1.
        error: Shape (n,). True where the judge disagrees with the label or has no preference.
        report: The outcome of the check of all rows. A missing answer is never read as 0.5.
        position_flips: Share of pairs in which the two orders prefer different responses; None for
            a reward model, which has no order.
    """

    uncertainty: FloatArray
    error: NDArray[np.bool_]
    report: LabelReport = field(default_factory=LabelReport)
    position_flips: float | None = None


def labeled_scores_of(judged: Judged, source: str) -> LabeledScores:
    """The scores of judged pairs; a row without a signal of the judge is left out.

    Raises:
        InvalidRequestError: No row is usable, or the rows have the answers of several judges.
    """
    judged.check_one_judge(source)
    scores = METHODS["bpe"].score(judged.pairs)
    if not len(scores.pairs):
        raise InvalidRequestError(
            f"{source} has no labeled pair: each row needs a label (A or B), and p_fwd and p_rev, "
            f"or score_a and score_b; there are {judged.report.sentence}"
        )
    unscored = set(range(len(judged.pairs))) - set(scores.pairs.tolist())
    unusable = [
        LabeledRow(place=judged.places[i], problem="no judgment of both orders")
        for i in sorted(unscored)
    ]
    used = [judged.pairs[i] for i in scores.pairs]
    flips = preferences_of(used).position_flips if used[0].has_both_orders else None
    return LabeledScores(
        uncertainty=scores.uncertainty,
        error=scores.error,
        report=judged.report.without(unusable),
        position_flips=flips,
    )


def assessment_of(scores: LabeledScores, alphas: Sequence[float], *, delta: float) -> Assessment:
    """The figures of a judge, with a row for each guarantee and alpha, in (0, 1) like delta."""
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error)
    # Pairs without a preference are errors at ln 2, and never accepted.
    undecided = int((scores.error & (scores.uncertainty >= LN2)).sum())
    rows = list[Threshold]()
    for guarantee in GUARANTEES:
        for alpha in alphas:
            threshold = threshold_on(curve, alpha, guarantee, delta)
            accepted, errors = curve.accepted_at(threshold, undecided=undecided)
            row = row_of(
                threshold,
                alpha=alpha,
                guarantee=guarantee,
                delta=delta if guarantee == "pac" else None,
                accepted=accepted,
                errors=errors,
                n=curve.n,
            )
            rows.append(row)
    return Assessment(
        n=curve.n,
        accuracy=float(1.0 - scores.error.mean()),
        auroc=auroc(-scores.uncertainty, ~scores.error),
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
