"""JSON answers about calibration sets."""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Any

from pydantic import Field

from app.core.calibration import Calibration, ThresholdRow
from app.core.clusters import ClusterRule
from app.core.comparison import Guarantee, Label
from app.gauges import TrafficFigures
from app.service.calibration.batch import JudgedBatch, JudgedExample
from app.service.calibration.calibrator import CalibrationReport
from app.wire.answers import RISK_LEVEL, Out
from app.wire.feasibility import FeasibleAlphasOut, InfeasibleOut
from app.wire.problems import Problem


class ThresholdOut(Out):
    """The threshold of one alpha and guarantee, with coverage and risk on the set's examples.

    `coverage` and `empirical_risk` are over the pairs that the guarantee counts: all of them under
    "marginal", and those that `clusters` says under "pac". `labels_missing` is true if the
    threshold depends on labels that the set does not have yet. Nothing is accepted then.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    threshold: float | None
    coverage: float
    empirical_risk: float | None
    feasible: bool
    labels_missing: bool

    @classmethod
    def of(cls, row: ThresholdRow) -> "ThresholdOut":
        """Converts a row; an infeasible threshold becomes null."""
        return cls(
            alpha=row.alpha,
            guarantee=row.guarantee,
            delta=row.delta,
            threshold=row.threshold if row.feasible else None,
            coverage=row.coverage,
            empirical_risk=row.empirical_risk,
            feasible=row.feasible,
            labels_missing=row.labels_missing,
        )


class CalibrationOut(Out):
    """One version of a calibration set.

    `n` counts its pairs: `labelled` ones with a preferred side, `unlabelled` ones of a pool, and
    `pool_ties`. `questions` counts their different questions, and `counted` the pairs of these that
    `pac` counts by the rule of `clusters`. `accuracy` is null while pairs have no label.
    """

    name: str
    version: int
    n: int
    judge: str
    fingerprint: str
    accuracy: float | None
    label_noise: float
    labelled: int
    unlabelled: int
    pool_ties: int
    clusters: ClusterRule
    questions: int
    counted: int
    thresholds: list[ThresholdOut]

    @classmethod
    def of_set(cls, calibration: Calibration) -> "CalibrationOut":
        """Converts a calibration set."""
        return cls(**calibration_fields(calibration))


def calibration_fields(calibration: Calibration) -> dict[str, Any]:
    """The fields of `CalibrationOut`, which longer answers extend."""
    return {
        "name": calibration.name,
        "version": calibration.version,
        "n": calibration.n,
        "judge": calibration.judge,
        "fingerprint": calibration.fingerprint,
        "accuracy": calibration.accuracy,
        "label_noise": calibration.label_noise,
        "labelled": calibration.labelled,
        "unlabelled": calibration.unlabelled,
        "pool_ties": calibration.ties,
        "clusters": calibration.clusters,
        "questions": calibration.questions,
        "counted": calibration.pac_pairs.curve.n,
        "thresholds": [ThresholdOut.of(row) for row in calibration.standard_rows],
    }


class ExampleErrorOut(Out):
    """The error of an example that was not added, with its index in the batch and its id."""

    index: int
    id: str | int | None
    error: Problem


class CalibrateOut(CalibrationOut):
    """The calibration set after a batch was added, with the counts and errors of that batch."""

    added: int
    updated: int
    ties: int
    removed: int
    failed: int
    errors: list[ExampleErrorOut]

    @classmethod
    def of(cls, report: CalibrationReport, errors: list[ExampleErrorOut]) -> "CalibrateOut":
        """Converts a report.

        Args:
            report: The new version and the counts of the batch.
            errors: All failed examples: those in the report, and those that could not be parsed.
        """
        return cls(
            **calibration_fields(report.calibration),
            added=report.added,
            updated=report.updated,
            ties=report.ties,
            removed=report.removed,
            failed=len(errors),
            errors=errors,
        )


class ScoredExampleOut(Out):
    """The scores and the label of one example.

    The label is null for a pair that has none yet. A tie has no scores, unless it belongs to a
    pool. `question` is a digest of the question alone; null in examples of older releases.
    `gap_fwd` and `gap_rev` are the logit of response A minus that of response B, with response A
    shown first and second.
    """

    digest: str
    gap_fwd: float | None
    gap_rev: float | None
    label_mass: float | None
    label: Label | None
    question: str | None

    @classmethod
    def of(cls, example: JudgedExample) -> "ScoredExampleOut":
        """Converts a judged example."""
        score = example.score
        if score is None:
            return cls(
                digest=example.digest,
                gap_fwd=None,
                gap_rev=None,
                label_mass=None,
                label="tie",
                question=None,
            )
        return cls(digest=example.digest, **score._asdict())


class ScoresOut(Out):
    """A judged batch that was added to no set: its scores in order, without the failed examples."""

    judge: str
    fingerprint: str
    scores: list[ScoredExampleOut]
    ties: int
    failed: int
    errors: list[ExampleErrorOut]

    @classmethod
    def of(cls, judge: str, batch: JudgedBatch, errors: list[ExampleErrorOut]) -> "ScoresOut":
        """Converts a batch.

        Args:
            judge: Name of the judge.
            batch: The judged batch.
            errors: All failed examples: those of the batch, and those that could not be parsed.
        """
        judged = (each for each in batch.examples if isinstance(each, JudgedExample))
        return cls(
            judge=judge,
            fingerprint=batch.fingerprint,
            scores=[ScoredExampleOut.of(each) for each in judged],
            ties=batch.ties,
            failed=len(errors),
            errors=errors,
        )


class ExamplesOut(Out):
    """One page of the examples of a calibration set, sorted by digest; texts are not kept.

    Read the next page with `after`, the last digest of this page. If `version` differs between two
    pages, the set has changed: begin again.
    """

    name: str
    version: int
    judge: str
    fingerprint: str
    label_noise: float
    clusters: ClusterRule
    min_label_mass: float
    n: int
    examples: list[ScoredExampleOut]

    @classmethod
    def of(cls, calibration: Calibration, *, after: str, limit: int) -> "ExamplesOut":
        """Makes a page.

        Args:
            calibration: The set.
            after: Only examples with a larger digest.
            limit: Most examples.
        """
        table = calibration.table
        # `nsmallest` lets other threads run in between, and one call of `sorted` does not.
        page = nsmallest(limit, (digest for digest in table if digest > after))
        return cls(
            name=calibration.name,
            version=calibration.version,
            judge=calibration.judge,
            fingerprint=calibration.fingerprint,
            label_noise=calibration.label_noise,
            clusters=calibration.clusters,
            min_label_mass=calibration.min_label_mass,
            n=calibration.n,
            examples=[ScoredExampleOut.of(JudgedExample(each, table[each])) for each in page],
        )


class CurvePointOut(Out):
    """One point of the risk-coverage curve."""

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float = Field(description=RISK_LEVEL)


class TrafficOut(Out):
    """About the last 1,000 judgments with this version, compared with its labelled pairs.

    `abstentions` is the share of judgments that abstained. `expected_abstentions` is the share of
    the labelled pairs that the same thresholds do not accept. Both are null if fewer than 200
    judgments had a feasible alpha. `drifted` is true if the judgments of all replicas are unlike
    the labelled pairs by more than chance (`GET /calibrations/{name}/monitor` has the evidence).
    """

    judgments: int
    abstentions: float | None
    expected_abstentions: float | None
    uncertainty: float
    expected_uncertainty: float
    drifted: bool

    @classmethod
    def of(cls, figures: TrafficFigures, *, drifted: bool) -> "TrafficOut":
        """Converts the figures."""
        return cls(
            judgments=figures.judgments,
            abstentions=figures.abstentions,
            expected_abstentions=figures.expected_abstentions,
            uncertainty=figures.uncertainty,
            expected_uncertainty=figures.expected_uncertainty,
            drifted=drifted,
        )


class CalibrationDetailOut(CalibrationOut):
    """A calibration set with its quality and its risk-coverage curve of at most 200 points.

    `off_task` counts the examples with less label mass than SCOPE_MIN_LABEL_MASS; thresholds are
    computed without them. `traffic` covers only the process that answers. It is null if that
    process made fewer than 200 judgments with this version, or if the set has fewer than 50
    examples. `requested` has the `pac` thresholds of the alphas in the URL, each at its share of
    delta, so that you may choose one of them after a look.
    """

    auroc: float | None
    expected_calibration_error: float | None
    position_flips: float | None
    mean_label_mass: float | None
    off_task: int
    infeasible: list[InfeasibleOut]
    feasible_alphas: list[FeasibleAlphasOut]
    requested: list[ThresholdOut]
    curve: list[CurvePointOut]
    traffic: TrafficOut | None

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        traffic: TrafficFigures | None,
        requested: Iterable[tuple[float, float]] = (),
        *,
        drifted: bool,
    ) -> "CalibrationDetailOut":
        """Converts a calibration set.

        Args:
            calibration: The set.
            traffic: Recent judgments with it.
            requested: (alpha, delta) of further thresholds of "pac".
            drifted: Whether the traffic has drifted.
        """
        return cls(
            **calibration_fields(calibration),
            auroc=calibration.auroc,
            expected_calibration_error=calibration.expected_calibration_error,
            position_flips=calibration.position_flips,
            mean_label_mass=calibration.mean_label_mass,
            off_task=calibration.off_task,
            infeasible=[InfeasibleOut.of(row, each) for row, each in calibration.infeasible],
            feasible_alphas=[
                FeasibleAlphasOut.of(guarantee, intervals)
                for guarantee, intervals in calibration.feasible_alphas.items()
            ],
            requested=[
                ThresholdOut.of(calibration.row(alpha, "pac", delta)) for alpha, delta in requested
            ],
            curve=[CurvePointOut(**point._asdict()) for point in calibration.risk_coverage],
            traffic=None if traffic is None else TrafficOut.of(traffic, drifted=drifted),
        )


class CalibrationListOut(Out):
    """Every calibration set of the store."""

    calibrations: list[CalibrationOut]

    @classmethod
    def of(cls, calibrations: Iterable[Calibration]) -> "CalibrationListOut":
        """Converts calibration sets."""
        return cls(calibrations=[CalibrationOut.of_set(each) for each in calibrations])
