"""Builds the records of calibration sets."""

from collections.abc import Sequence
from typing import Any

from app.core.assessment import AFTER_LOOKING, share_interval
from app.core.calibration import STANDARD_DELTA, Calibration, ThresholdRow
from app.core.cascade import Chosen
from app.observability.gauges import TrafficFigures
from scope_judge import records


def threshold(row: ThresholdRow) -> records.Threshold:
    """Converts a row; an infeasible threshold becomes None."""
    return records.Threshold(
        alpha=row.alpha,
        guarantee=row.guarantee,
        delta=row.delta,
        threshold=row.threshold if row.feasible else None,
        coverage=row.coverage,
        empirical_risk=row.empirical_risk,
        feasible=row.feasible,
        labels_missing=row.labels_missing,
        tie_share=row.tie_share,
        tie_interval=row.tie_interval,
        cascade=None if row.chosen is None else _choice(row.chosen),
    )


def _choice(chosen: Chosen) -> records.CascadeChoice:
    return records.CascadeChoice(
        serves="cascade" if chosen.is_cascade else "large",
        why=chosen.why,
        small_threshold=chosen.first if chosen.is_cascade else None,
        escalated=chosen.escalated,
        cascade_coverage=chosen.cascade_coverage,
        large_coverage=chosen.large_coverage,
    )


def calibration_fields(calibration: Calibration) -> dict[str, Any]:
    """The fields of `Calibration`, which longer records extend."""
    return {
        "name": calibration.name,
        "version": calibration.version,
        "n": calibration.n,
        "judge": calibration.judge,
        "fingerprint": calibration.fingerprint,
        "accuracy": calibration.accuracy,
        "labelled": calibration.labelled,
        "unlabelled": calibration.unlabelled,
        "pool_ties": calibration.ties,
        "runtimes": calibration.runtimes,
        "questions": calibration.questions,
        "counted": calibration.pac_pairs.curve.n,
        "thresholds": tuple(map(threshold, calibration.standard_rows)),
        "cascade_share": None if calibration.cascade is None else calibration.cascade.share,
    }


def calibration_of(calibration: Calibration) -> records.Calibration:
    """Converts a calibration set, for the list of all sets."""
    return records.Calibration(**calibration_fields(calibration))


def calibration_detail(
    calibration: Calibration,
    traffic: TrafficFigures | None,
    requested: Sequence[ThresholdRow],
    *,
    drifted: bool,
    votes: bool = False,
) -> records.CalibrationDetail:
    """Converts a calibration set.

    Args:
        calibration: The set.
        traffic: Recent judgments with it.
        requested: Further rows of "pac".
        drifted: Whether the traffic has drifted.
        votes: Whether the set is of this service's judge, and the judge votes.
    """
    return records.CalibrationDetail(
        **calibration_fields(calibration),
        accuracy_interval=None
        if calibration.accuracy is None
        else share_interval(calibration.accuracy, calibration.labelled),
        auroc=calibration.auroc,
        expected_calibration_error=calibration.expected_calibration_error,
        position_flips=calibration.position_flips,
        unanimous=calibration.unanimous if votes else None,
        mean_label_mass=calibration.mean_label_mass,
        temperature=calibration.temperature if calibration.orders == 1 else None,
        off_task=calibration.off_task,
        unscored=calibration.unscored,
        tie_rate=calibration.tie_rate,
        infeasible=tuple(
            records.Infeasible(
                alpha=row.alpha,
                guarantee=row.guarantee,
                delta=row.delta,
                smallest_feasible_alpha=advice.smallest_alpha,
                more_examples=advice.more_examples,
                after_looking=AFTER_LOOKING[row.guarantee],
            )
            for row, advice in calibration.infeasible
        ),
        feasible_alphas=tuple(
            records.FeasibleAlphas(
                guarantee=guarantee,
                delta=STANDARD_DELTA if guarantee == "pac" else None,
                intervals=tuple((alphas.low, alphas.high) for alphas in intervals),
            )
            for guarantee, intervals in calibration.feasible_alphas.items()
        ),
        requested=tuple(map(threshold, requested)),
        curve=tuple(
            records.CurvePoint(
                uncertainty=point.uncertainty,
                coverage=point.coverage,
                empirical_risk=point.empirical_risk,
                risk_level=point.risk_level,
            )
            for point in calibration.risk_coverage
        ),
        traffic=None
        if traffic is None
        else records.Traffic(
            judgments=traffic.judgments,
            abstentions=traffic.abstentions,
            expected_abstentions=traffic.expected_abstentions,
            uncertainty=traffic.uncertainty,
            expected_uncertainty=traffic.expected_uncertainty,
            drifted=drifted,
        ),
    )
