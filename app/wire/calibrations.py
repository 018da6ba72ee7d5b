"""Calibration sets as JSON."""

from collections.abc import Iterable
from typing import Any

from app.core.calibration import Calibration, ThresholdRow
from app.core.comparison import Guarantee
from app.service.calibration.calibrator import CalibrationReport
from app.service.calibration.trail import Change
from app.telemetry import TrafficFigures
from app.wire.answers import Out
from app.wire.problems import Problem


class ThresholdOut(Out):
    """One alpha under one guarantee; coverage and risk are those on the calibration set."""

    alpha: float
    guarantee: Guarantee
    delta: float | None
    threshold: float | None
    coverage: float
    empirical_risk: float | None
    feasible: bool

    @classmethod
    def of(cls, row: ThresholdRow) -> "ThresholdOut":
        """Writes a row; an infeasible threshold is null."""
        return cls(
            alpha=row.alpha,
            guarantee=row.guarantee,
            delta=row.delta,
            threshold=row.threshold if row.feasible else None,
            coverage=row.coverage,
            empirical_risk=row.empirical_risk,
            feasible=row.feasible,
        )


class CalibrationOut(Out):
    """One version of a calibration set."""

    name: str
    version: int
    n: int
    judge: str
    fingerprint: str
    accuracy: float | None
    label_noise: float
    thresholds: list[ThresholdOut]

    @classmethod
    def of_set(cls, calibration: Calibration) -> "CalibrationOut":
        """Writes a calibration set."""
        return cls(**_fields(calibration))


def _fields(calibration: Calibration) -> dict[str, Any]:
    """The fields that every answer about a calibration set has."""
    return {
        "name": calibration.name,
        "version": calibration.version,
        "n": calibration.n,
        "judge": calibration.judge,
        "fingerprint": calibration.fingerprint,
        "accuracy": calibration.accuracy,
        "label_noise": calibration.label_noise,
        "thresholds": [ThresholdOut.of(row) for row in calibration.standard_rows],
    }


class ExampleErrorOut(Out):
    """An example that was not added, by its place in the batch and its id."""

    index: int
    id: str | int | None
    error: Problem


class CalibrateOut(CalibrationOut):
    """The calibration set after a batch, and what became of the batch."""

    added: int
    updated: int
    ties: int
    removed: int
    failed: int
    errors: list[ExampleErrorOut]

    @classmethod
    def of(cls, report: CalibrationReport, errors: list[ExampleErrorOut]) -> "CalibrateOut":
        """Writes a report; `errors` are its failures and those that never reached the judge."""
        return cls(
            **_fields(report.calibration),
            added=report.added,
            updated=report.updated,
            ties=report.ties,
            removed=report.removed,
            failed=len(errors),
            errors=errors,
        )


class VersionOut(Out):
    """One change of a calibration set, as its trail keeps it.

    `action` is "calibrate", "rollback" or "delete", or what a later release adds. `by` is the name
    of the key that asked. `batch_digest` is the SHA-256 of the labelled batch, see the README. A
    deletion takes a number too, and has no `write_id`, `label_noise` and `thresholds_after`;
    thresholds are "guarantee:alpha" -> nats, null if infeasible, computed with `min_label_mass`,
    the setting of the service that made the change.
    """

    version: int
    write_id: str | None
    action: str
    at: str
    by: str
    batch_digest: str | None
    added: int
    updated: int
    ties: int
    removed: int | None
    failed: int
    n: int
    label_noise: float | None
    min_label_mass: float | None
    judge: str | None
    fingerprint: str | None
    rolled_back_to: int | None
    thresholds_before: dict[str, float | None] | None
    thresholds_after: dict[str, float | None] | None

    @classmethod
    def of(cls, change: Change) -> "VersionOut":
        """Writes an entry of a trail, whose fields these are."""
        return cls(**{field: getattr(change, field) for field in cls.model_fields})


class VersionsOut(Out):
    """The trail of a calibration set, newest first; entries that cannot be read are left out."""

    name: str
    versions: list[VersionOut]

    @classmethod
    def of(cls, name: str, changes: list[Change]) -> "VersionsOut":
        """Writes a part of a trail."""
        return cls(name=name, versions=[VersionOut.of(change) for change in changes])


class CurvePointOut(Out):
    """One point of the risk-coverage curve."""

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float


class InfeasibleOut(Out):
    """An alpha at which nothing is accepted, and what would change that.

    `smallest_feasible_alpha` is with the examples that are there; `more_examples` makes this alpha
    feasible if the error rates stay as they are, null if no number up to 100,000 would.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    smallest_feasible_alpha: float | None
    more_examples: int | None


class TrafficOut(Out):
    """The last 1,000 judgments or so by this version, beside its labelled pairs.

    `abstentions` is the share of judgments that abstained, `expected_abstentions` the share of the
    labelled pairs that the same thresholds leave out; both are null where fewer than 200 judgments
    had a feasible alpha. `drifted` is true where abstentions or uncertainty differ by more than
    chance, in either direction.
    """

    judgments: int
    abstentions: float | None
    expected_abstentions: float | None
    uncertainty: float
    expected_uncertainty: float
    drifted: bool

    @classmethod
    def of(cls, figures: TrafficFigures) -> "TrafficOut":
        """Writes the figures."""
        return cls(
            judgments=figures.judgments,
            abstentions=figures.abstentions,
            expected_abstentions=figures.expected_abstentions,
            uncertainty=figures.uncertainty,
            expected_uncertainty=figures.expected_uncertainty,
            drifted=figures.has_drifted,
        )


class CalibrationDetailOut(CalibrationOut):
    """A calibration set with its quality and its risk-coverage curve, at most 200 points.

    `off_task` counts the examples with less label mass than SCOPE_MIN_LABEL_MASS: no threshold is
    made of them. `traffic` is of the process that answers; null where that has made fewer than 200
    judgments by this version, or the set has fewer than 50 examples.
    """

    auroc: float | None
    expected_calibration_error: float | None
    position_flips: float | None
    mean_label_mass: float | None
    off_task: int
    infeasible: list[InfeasibleOut]
    curve: list[CurvePointOut]
    traffic: TrafficOut | None

    @classmethod
    def of(cls, calibration: Calibration, traffic: TrafficFigures | None) -> "CalibrationDetailOut":
        """Writes a calibration set with its curve and its traffic."""
        return cls(
            **_fields(calibration),
            auroc=calibration.auroc,
            expected_calibration_error=calibration.expected_calibration_error,
            position_flips=calibration.position_flips,
            mean_label_mass=calibration.mean_label_mass,
            off_task=calibration.n - calibration.curve.n,
            infeasible=[
                InfeasibleOut(
                    alpha=row.alpha,
                    guarantee=row.guarantee,
                    delta=row.delta,
                    smallest_feasible_alpha=advice.smallest_alpha,
                    more_examples=advice.more_examples,
                )
                for row, advice in calibration.infeasible
            ],
            curve=[CurvePointOut(**point._asdict()) for point in calibration.risk_coverage],
            traffic=None if traffic is None else TrafficOut.of(traffic),
        )


class CalibrationListOut(Out):
    """Every calibration set of the store."""

    calibrations: list[CalibrationOut]

    @classmethod
    def of(cls, calibrations: Iterable[Calibration]) -> "CalibrationListOut":
        """Writes calibration sets."""
        return cls(calibrations=[CalibrationOut.of_set(each) for each in calibrations])
