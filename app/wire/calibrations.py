"""JSON about calibration sets: the answers, and the trail of versions."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from app.core.assessment import AFTER_LOOKING, AlphaInterval, share_interval
from app.core.calibration import STANDARD_DELTA, Calibration, ThresholdRow
from app.core.comparison import Guarantee
from app.core.diagnostics import Feasibility
from app.observability.gauges import TrafficFigures
from app.service.calibration.trail import Change
from app.wire.answers import RISK_LEVEL, Out
from app.wire.problems import Problem
from app.wire.requests import Probability, Strict, invalid_field


class ThresholdOut(Out):
    """The threshold of one alpha and guarantee, with coverage and risk on the set's examples.

    `coverage` and `empirical_risk` are over the pairs that the guarantee counts: all of them under
    "marginal", and one pair of each question under "pac". `labels_missing` is true if the
    threshold depends on labels that the set does not have yet. Nothing is accepted then. The
    promise is about pairs of which people prefer one side: `tie_share` is the share of ties among
    the accepted pairs of the set that have a label, and `tie_interval` its 95% interval.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    threshold: float | None
    coverage: float
    empirical_risk: float | None
    feasible: bool
    labels_missing: bool
    tie_share: float | None
    tie_interval: tuple[float, float] | None

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
            tie_share=row.tie_share,
            tie_interval=row.tie_interval,
        )


class CalibrationOut(Out):
    """One version of a calibration set.

    `n` counts its pairs: `labelled` ones with a preferred side, `unlabelled` ones of a pool, and
    `pool_ties`, which people found equal, in a pool or not. `questions` counts their different
    questions, and `counted` the pairs that `pac` counts: one of each question, without ties and
    pairs off task. `accuracy` is null while pairs have no label.
    """

    name: str
    version: int
    n: int
    judge: str
    fingerprint: str
    accuracy: float | None
    labelled: int
    unlabelled: int
    pool_ties: int
    runtimes: list[str]
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
        "labelled": calibration.labelled,
        "unlabelled": calibration.unlabelled,
        "pool_ties": calibration.ties,
        "runtimes": list(calibration.runtimes),
        "questions": calibration.questions,
        "counted": calibration.pac_pairs.curve.n,
        "thresholds": [ThresholdOut.of(row) for row in calibration.standard_rows],
    }


class ExampleErrorOut(Out):
    """The error of an example that was not added, with its index in the batch and its id."""

    index: int
    id: str | int | None
    error: Problem


class CurvePointOut(Out):
    """One point of the risk-coverage curve."""

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float = Field(description=RISK_LEVEL)


class TrafficOut(Out):
    """About the last 1,000 judgments with this version, compared with its labeled pairs.

    `abstentions` is the share of judgments that abstained. `expected_abstentions` is the share of
    the labeled pairs that the same thresholds do not accept. Both are null if fewer than 200
    judgments had a feasible alpha. `drifted` is true if the judgments of all replicas are unlike
    the labeled pairs by more than chance (`GET /calibrations/{name}/monitor` has the evidence).
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


class InfeasibleOut(Out):
    """An alpha at which nothing is accepted, and what would make it feasible.

    `smallest_feasible_alpha` is the smallest alpha that the present examples make feasible; under
    "pac", larger alphas may be infeasible again (see `feasible_alphas`).
    `more_examples` is the number of additional examples that make this alpha feasible if the error
    rates stay the same; null if more than 100,000 are needed. Neither keeps the promise of `pac`
    if you act on it, because that is a choice made after seeing the labels; `after_looking` has
    the price in words.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    smallest_feasible_alpha: float | None
    more_examples: int | None
    after_looking: str

    @classmethod
    def of(cls, row: ThresholdRow, advice: Feasibility) -> "InfeasibleOut":
        """Converts an infeasible row and the advice about it."""
        return cls(
            alpha=row.alpha,
            guarantee=row.guarantee,
            delta=row.delta,
            smallest_feasible_alpha=advice.smallest_alpha,
            more_examples=advice.more_examples,
            after_looking=AFTER_LOOKING[row.guarantee],
        )


class FeasibleAlphasOut(Out):
    """The alphas at which the present examples accept something, in steps of 0.001 below 1.

    `intervals` has the first and the last alpha of each row of consecutive feasible alphas. Each
    alpha keeps its own promise. One that is chosen here does not: of the alphas from 0.02 to 0.30,
    some one was exceeded in up to 29% of simulated calibrations with delta 0.10.
    """

    guarantee: Guarantee
    delta: float | None
    intervals: list[tuple[float, float]]

    @classmethod
    def of(cls, guarantee: Guarantee, intervals: Iterable[AlphaInterval]) -> "FeasibleAlphasOut":
        """Converts the feasible alphas of a guarantee, "pac" at the standard delta."""
        return cls(
            guarantee=guarantee,
            delta=STANDARD_DELTA if guarantee == "pac" else None,
            intervals=[(alphas.low, alphas.high) for alphas in intervals],
        )


class CalibrationDetailOut(CalibrationOut):
    """A calibration set with its quality and its risk-coverage curve of at most 200 points.

    `off_task` counts the examples with less label mass than SCOPE_MIN_LABEL_MASS; thresholds are
    computed without them. `tie_rate` is the share of the pairs that people found equal: each
    promise is about the others.
    `traffic` covers only the process that answers. It is null if that process made fewer than 200
    judgments with this version, or if the set has fewer than 50 examples. `requested` has the `pac`
    thresholds of the alphas in the URL, each at the whole of delta.
    """

    accuracy_interval: tuple[float, float] | None
    auroc: float | None
    expected_calibration_error: float | None
    position_flips: float | None
    mean_label_mass: float | None
    temperature: float | None
    off_task: int
    tie_rate: float | None
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
        requested: Iterable[ThresholdRow] = (),
        *,
        drifted: bool,
    ) -> "CalibrationDetailOut":
        """Converts a calibration set.

        Args:
            calibration: The set.
            traffic: Recent judgments with it.
            requested: Further rows of "pac".
            drifted: Whether the traffic has drifted.
        """
        return cls(
            **calibration_fields(calibration),
            accuracy_interval=None
            if calibration.accuracy is None
            else share_interval(calibration.accuracy, calibration.labelled),
            auroc=calibration.auroc,
            expected_calibration_error=calibration.expected_calibration_error,
            position_flips=calibration.position_flips,
            mean_label_mass=calibration.mean_label_mass,
            temperature=calibration.temperature if calibration.orders == 1 else None,
            off_task=calibration.off_task,
            tie_rate=calibration.tie_rate,
            infeasible=[InfeasibleOut.of(row, advice) for row, advice in calibration.infeasible],
            feasible_alphas=[
                FeasibleAlphasOut.of(guarantee, intervals)
                for guarantee, intervals in calibration.feasible_alphas.items()
            ],
            requested=[ThresholdOut.of(row) for row in requested],
            curve=[CurvePointOut.model_validate(point) for point in calibration.risk_coverage],
            traffic=None if traffic is None else TrafficOut.of(traffic, drifted=drifted),
        )


class CalibrationListOut(Out):
    """One page of the calibration sets; `next_after` is null on the last page."""

    calibrations: list[CalibrationOut]
    next_after: str | None


class VersionOut(Out):
    """One change in the trail of a calibration set.

    `action` is "calibrate", "pool", "import", "absorb", "rollback" or "delete". `by` is the name of
    the key that sent the request. `batch_digest` is the SHA-256 of the labeled batch; a pool, an
    import or an absorption has none. A deletion also takes a version number; its `write_id` and
    `thresholds_after` are null. Thresholds are "guarantee:alpha" -> nats, null if infeasible,
    without those that depend on missing labels. They were computed with `min_label_mass`, the
    setting of the service that made the change.
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
    min_label_mass: float | None
    judge: str | None
    fingerprint: str | None
    rolled_back_to: int | None
    thresholds_before: dict[str, float | None] | None
    thresholds_after: dict[str, float | None] | None
    unlabelled: int

    @classmethod
    def of(cls, change: Change) -> "VersionOut":
        """Converts one entry of the trail."""
        return cls(**{field: getattr(change, field) for field in cls.model_fields})


class VersionsOut(Out):
    """The changes of a calibration set, newest first; unreadable changes are left out."""

    name: str
    versions: list[VersionOut]

    @classmethod
    def of(cls, name: str, changes: list[Change]) -> "VersionsOut":
        """Converts one page of a trail."""
        return cls(name=name, versions=[VersionOut.of(change) for change in changes])


# Each threshold is a computation of a few milliseconds.
_MOST_ALPHAS = 32


class AlphasQuery(Strict):
    """Alphas whose `pac` thresholds are asked for together, in the URL."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: Annotated[
        list[Probability],
        Field(
            default_factory=list,
            max_length=_MOST_ALPHAS,
            description="Alpha whose `pac` threshold to show; repeat for more.",
        ),
    ]
    delta: Annotated[
        Probability | None,
        Field(description="Probability that the guarantee of one of them fails."),
    ] = None

    def levels(self, default_delta: float) -> list[tuple[float, float]]:
        """Each alpha once, in order, with delta.

        Raises:
            InvalidRequestError: There is a delta without an alpha.
        """
        alphas = list(dict.fromkeys(self.alpha))
        if not alphas:
            if self.delta is not None:
                raise invalid_field("delta", "only allowed with alpha, e.g. ?alpha=0.1&alpha=0.15")
            return []
        delta = default_delta if self.delta is None else self.delta
        return [(alpha, delta) for alpha in alphas]
