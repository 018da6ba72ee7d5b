"""A calibration set: its labeled scores, and the thresholds computed from them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.core.assessment import AlphaInterval
from app.core.cascade import (
    PAC_ONLY,
    CascadePairs,
    CascadePlan,
    Chosen,
    choose,
    usable_uncertainty,
)
from app.core.comparison import STANDARD_ALPHAS as STANDARD_ALPHAS
from app.core.comparison import STANDARD_DELTA as STANDARD_DELTA
from app.core.comparison import Guarantee, Orders
from app.core.diagnostics import (
    auroc,
    expected_calibration_error,
    feasible_alphas,
    more_examples,
)
from app.core.errors import CascadeError, LabelsMissingError
from app.core.examples import Examples, drawn_pairs, lots_of, question_numbers
from app.core.examples import LabeledExample as LabeledExample
from app.core.pac import PacPairs
from app.core.preference import FloatArray, Preferences
from app.core.temperature import fitted_temperature
from app.core.thresholds import ThresholdCurve, row_of, with_ties
from scope_judge.records import CascadeChoice, CurvePoint, Threshold

GUARANTEES: tuple[Guarantee, ...] = ("marginal", "pac")
_CURVE_POINTS = 200
# Callers choose alpha and delta, so the number of cached thresholds is bounded.
_KEPT_THRESHOLDS = 1024


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """One immutable version of a calibration set; each threshold is computed once.

    Args:
        write_id: Unique id of the write that made this version.
        version: It grows by one with every write.
        fingerprint: Fingerprint of the judge that scored the examples.
        examples: Digest of the comparison -> labeled example.
        min_label_mass: In [0, 1). An example with less label mass is off task: never accepted.
        changed_at: Time of this version, in seconds since 1970; None until it is stored.
        release: Release of scope-judge that made this version; None until it is stored.
        cascade: The plan of a cascade's set; None for a judge alone. The scores of its examples are
            the large judge's, with the small judge's in them, and so is every figure of the judge.

    Until all pairs of a pool have a label, the set has a "pac" threshold only where the labels so
    far decide it, and no figure that needs all labels: people label in the order of rising
    uncertainty, so the labels so far are not a sample.

    The pairs without a score of the judge (`unscored`) count in `n`, in the denominator of each
    coverage and nowhere else: the judge abstains on them whatever alpha is.

    Thresholds and curve use only the examples on task. No threshold accepts an off-task example, so
    S = 0 in SCOPE's eq. 5 (scope_condition), and the example adds nothing to the sum. Among on-task
    comparisons, examples and judgments remain exchangeable. All examples with a score count in
    `accuracy`, `auroc`, `expected_calibration_error`, `position_flips`, `mean_label_mass` and the
    denominator of each coverage, because these figures describe the judge.
    """

    name: str
    write_id: str
    version: int
    judge: str
    fingerprint: str
    examples: Mapping[str, LabeledExample]
    min_label_mass: float = 0.0
    changed_at: float | None = None
    release: str | None = None
    cascade: CascadePlan | None = None

    @property
    def n(self) -> int:
        """Number of examples, with and without labels."""
        return len(self.examples)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantees that the set can give."""
        return GUARANTEES if self.cascade is None else ("pac",)

    @cached_property
    def table(self) -> Examples:
        """The examples in columns; `examples` itself if it has columns already."""
        return Examples.of(self.examples)

    @cached_property
    def temperature(self) -> float:
        """Number by which the gaps are divided, so that p_bar fits the labels of these examples.

        1 for a judge that sees both orders, whose gaps are differences of logits, and until all
        pairs have labels: those that have one are not a sample.
        """
        if self.cascade is not None or self.orders == 2 or self.unlabelled:
            return 1.0
        gap = self.table.numbers[self.sided, 0]
        return fitted_temperature(gap, self.table.label_a[self.sided])

    @property
    def first_table(self) -> Examples:
        """The examples with the scores of the judge that is asked first."""
        return self.table if self.cascade is None else self.table.small

    @cached_property
    def preferences(self) -> Preferences:
        """The preferences of the judge, in the order of `examples`."""
        return self.table.preferences_at(self.temperature)

    @cached_property
    def error(self) -> NDArray[np.bool_]:
        """Shape (n,). True where a sided pair is wrong, or the judge has no preference."""
        return self.sided & self.preferences.wrong(self.table.label_a)

    @cached_property
    def sided(self) -> NDArray[np.bool_]:
        """Shape (n,). True where people prefer one side, and the judge gave a score."""
        return self.table.scored & ~(self.table.unlabelled | self.table.tied)

    @cached_property
    def unlabelled(self) -> int:
        """Number of pairs without a label that need one; pairs without a score do not."""
        return int((self.table.unlabelled & self.table.scored).sum())

    @property
    def labelled(self) -> int:
        """Number of pairs with a score of which people prefer one side."""
        return int(self.sided.sum())

    @property
    def unscored(self) -> int:
        """Number of pairs without a score that people did not find equal."""
        return self.n - self.labelled - self.unlabelled - self.ties

    @cached_property
    def ties(self) -> int:
        """Number of pairs that people found equal; their scores count for drift alone."""
        return int(self.table.tied.sum())

    @cached_property
    def questions(self) -> int:
        """Number of different questions; a pair whose question is unknown counts as one."""
        return int(self._question_numbers.max()) + 1 if self.n else 0

    @cached_property
    def _question_numbers(self) -> NDArray[np.int64]:
        return question_numbers(self.table.questions)

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Shape (n,). True for the pairs that "pac" counts, among them ties and off-task pairs.

        One pair of each question, drawn by a hash of its digest.
        """
        if self.questions == self.n:
            return np.ones(self.n, dtype=bool)
        return drawn_pairs(self._question_numbers, lots_of(self.table))

    @cached_property
    def uncertainty(self) -> FloatArray:
        """Shape (n,). Uncertainty s(x) of each example, in nats."""
        return self.preferences.entropy

    @cached_property
    def on_task(self) -> NDArray[np.bool_]:
        """Shape (n,). False without a score, and with less label mass than `min_label_mass`."""
        return self.table.scored & ~(self.table.label_mass < self.min_label_mass)

    @property
    def off_task(self) -> int:
        """Number of pairs with less label mass than `min_label_mass`."""
        return int((self.table.scored & ~self.on_task).sum())

    @cached_property
    def curve(self) -> ThresholdCurve:
        """SCOPE's threshold for every alpha, from the examples on task.

        Raises:
            LabelsMissingError: A pair has no label.
        """
        if self.unlabelled:
            raise self.labels_missing(None, None)
        used = self.on_task & self.sided
        return ThresholdCurve.fit(self.uncertainty[used], self.error[used])

    @cached_property
    def pac_pairs(self) -> PacPairs:
        """The pairs that "pac" counts, without those off task."""
        drawn = self.counted & self.on_task
        used = drawn & ~self.table.tied
        whole = not self.unlabelled and self.counted.all()
        return PacPairs.fit(
            self.uncertainty[used],
            self.error[used],
            self.sided[used],
            drawn=int(drawn.sum()),
            curve=self.curve if whole else None,
        )

    def pac_digests(self, places: Iterable[int]) -> list[str]:
        """The digests of pairs, by their indices in `pac_pairs`."""
        used = np.flatnonzero(self.counted & self.on_task & ~self.table.tied)
        rows = {int(used[place]): None for place in places}
        digests = {row: digest for row, digest in enumerate(self.table) if row in rows}
        return [digests[row] for row in rows]

    def labels_missing(self, alpha: float | None, delta: float | None) -> LabelsMissingError:
        """The error of a criterion that this set cannot judge by without further labels.

        Args:
            alpha, delta: In (0, 1) with "pac"; None for "marginal".
        """
        path = f"GET /calibrations/{self.name}/next"
        if alpha is None:
            why = f'"marginal" needs all labels. {self._usable_pac}Label the rest: {path}'
        else:
            criterion = f"alpha={alpha:g}&delta={delta:g}"
            why = f"the tests of alpha {alpha:g} need more: {path}?{criterion}"
        return LabelsMissingError(
            f"calibration {self.name!r} has {self.unlabelled} pairs without a label, and {why} "
            "lists the pairs to label next"
        )

    @cached_property
    def _usable_pac(self) -> str:
        """Names the smallest standard alpha at which the labels so far give verdicts with "pac"."""
        rows = (self.row(alpha, "pac", STANDARD_DELTA) for alpha in STANDARD_ALPHAS)
        usable = next((row for row in rows if row.feasible), None)
        if usable is None:
            return ""
        return (
            'The labels so far give verdicts with "guarantee": "pac", '
            f'"alpha": {usable.alpha:g}, "delta": {STANDARD_DELTA:g}, which is promised if you '
            "labeled for these two. "
        )

    @cached_property
    def accuracy(self) -> float | None:
        """Share of examples on which judge and label agree; None unless all have labels."""
        if self.unlabelled or not self.sided.any():
            return None
        return float(1.0 - self.error[self.sided].mean())

    @cached_property
    def auroc(self) -> float | None:
        """AUROC of confidence for being right; None unless all have labels and verdicts differ."""
        if self.unlabelled:
            return None
        return auroc(self.preferences.confidence[self.sided], ~self.error[self.sided])

    @cached_property
    def expected_calibration_error(self) -> float | None:
        """Expected calibration error of the confidence, in [0, 1]; None unless all have labels."""
        if self.unlabelled:
            return None
        confidence = self.preferences.confidence[self.sided]
        return expected_calibration_error(confidence, ~self.error[self.sided])

    @cached_property
    def orders(self) -> Orders:
        """Number of orders of the responses that the judge has seen; 2 without examples."""
        return 1 if self.n and not self.table.sees_order.any() else 2

    @cached_property
    def has_label_mass(self) -> bool:
        """Whether all examples with a score have a label mass."""
        return not np.isnan(self.table.label_mass[self.table.scored]).any()

    @cached_property
    def position_flips(self) -> float | None:
        """Share of examples whose two orders prefer different responses; None without orders."""
        scored = int(self.table.scored.sum())
        if not scored or self.orders == 1:
            return None
        # Pairs without a score are NaN, which differs from nothing.
        return self.preferences.position_flips * self.n / scored

    @cached_property
    def unanimous(self) -> float | None:
        """Share of examples with a preference of exactly 0 or 1, as unanimous votes have it."""
        p_bar = self.preferences.p_bar[self.table.scored]
        return float(np.isin(p_bar, (0.0, 1.0)).mean()) if len(p_bar) else None

    @cached_property
    def mean_label_mass(self) -> float | None:
        """Mean of the smaller label mass of the two orders; None if any is unknown."""
        masses = self.table.label_mass[self.table.scored]
        if not len(masses) or not self.has_label_mass:
            return None
        # The sum does not depend on the order of the examples.
        return math.fsum(masses.tolist()) / len(masses)

    def threshold(self, alpha: float, guarantee: Guarantee, delta: float | None) -> float:
        """Returns lambda_hat in nats; -inf if infeasible, ln 2 to accept everything.

        Raises:
            LabelsMissingError: The threshold depends on labels that the set does not have yet.
        """
        # Safe in several threads at once: each reads the dictionary once and writes it once.
        kept = self.kept_threshold(alpha, guarantee, delta)
        if kept is not None:
            return kept
        if guarantee == "marginal":
            if self.cascade is not None:
                raise CascadeError(f"calibration {self.name!r}: {PAC_ONLY}")
            threshold = self.curve.threshold(alpha)
        elif self.cascade is not None:
            assert delta is not None, "pac needs a delta"
            threshold = self.chosen(alpha, delta).threshold
        else:
            assert delta is not None, "pac needs a delta"
            computed, _ = self.pac_pairs.tests(alpha, delta)
            if computed is None:
                raise self.labels_missing(alpha, delta)
            threshold = computed
        if len(self._thresholds) >= _KEPT_THRESHOLDS:
            self._thresholds.clear()
        self._thresholds[alpha, guarantee, delta] = threshold
        return threshold

    def kept_threshold(
        self, alpha: float, guarantee: Guarantee, delta: float | None
    ) -> float | None:
        """The threshold if it was computed already; None before that."""
        return self._thresholds.get((alpha, guarantee, delta))

    @cached_property
    def cascade_pairs(self) -> CascadePairs:
        """The labeled pairs that "pac" counts, with the scores of both judges of a cascade."""
        assert not self.table.unlabelled.any(), "a cascade's set has no pool"
        used = self.counted & ~self.table.tied
        (small, small_wrong), (large, large_wrong) = (
            self._answers_of(table) for table in (self.table.small, self.table)
        )
        return CascadePairs(
            small=small[used],
            large=large[used],
            small_wrong=small_wrong[used],
            large_wrong=large_wrong[used],
            drawn=int(self.counted.sum()),
        )

    def _answers_of(self, table: Examples) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Uncertainty and error of one judge of a cascade; infinite where it cannot answer."""
        preferences = table.preferences_at(1.0)
        wrong = preferences.wrong(table.label_a)
        return usable_uncertainty(preferences, table.label_mass, self.min_label_mass), wrong

    def chosen(self, alpha: float, delta: float) -> Chosen:
        """The thresholds of both judges of a cascade at one alpha and delta."""
        kept = self._chosen.get((alpha, delta))
        if kept is None:
            assert self.cascade is not None, "the set of a judge alone has one threshold"
            if len(self._chosen) >= _KEPT_THRESHOLDS:
                self._chosen.clear()
            kept = choose(self.cascade, self.cascade_pairs, alpha=alpha, delta=delta)
            self._chosen[alpha, delta] = kept
        return kept

    @cached_property
    def _chosen(self) -> dict[tuple[float, float], Chosen]:
        return {}

    @cached_property
    def _thresholds(self) -> dict[tuple[float, Guarantee, float | None], float]:
        return {}

    def row(self, alpha: float, guarantee: Guarantee, delta: float | None) -> Threshold:
        """The threshold of one alpha and its effect on the calibration set."""
        try:
            threshold = self.threshold(alpha, guarantee, delta)
        except LabelsMissingError:
            row = row_of(
                -math.inf, alpha=alpha, guarantee=guarantee, delta=delta, accepted=0, errors=0, n=0
            )
            return replace(row, labels_missing=True)
        if self.cascade is not None:
            assert delta is not None, "a cascade has pac"
            return self._cascade_row(self.chosen(alpha, delta), alpha, delta)
        used = self.counted if guarantee == "pac" else np.ones(self.n, dtype=bool)
        used = used & ~self.table.tied
        curve = self._curve_of(guarantee)
        undecided = int((used & self._undecided).sum())
        accepted, errors = curve.accepted_at(threshold, undecided=undecided)
        row = row_of(
            threshold,
            alpha=alpha,
            guarantee=guarantee,
            delta=delta,
            accepted=accepted,
            errors=errors,
            n=curve.n + int((used & ~self.on_task).sum()),
        )
        taken = self.on_task & self.preferences.accepted(threshold)
        ties, sided = int((taken & self.table.tied).sum()), int((taken & self.sided).sum())
        return with_ties(row, ties=ties, sided=sided)

    def _cascade_row(self, chosen: Chosen, alpha: float, delta: float) -> Threshold:
        small, _ = self._answers_of(self.table.small)
        large, _ = self._answers_of(self.table)
        accepted = (small <= chosen.first) | (large <= chosen.threshold)
        n = len(self.cascade_pairs.small)
        row = row_of(
            chosen.threshold,
            alpha=alpha,
            guarantee="pac",
            delta=delta,
            accepted=round(chosen.coverage * n),
            errors=chosen.errors,
            n=n,
        )
        choice = CascadeChoice(
            serves="cascade" if chosen.is_cascade else "large",
            why=chosen.why,
            escalated=chosen.escalated,
        )
        tied = self.table.tied
        ties, sided = int((accepted & tied).sum()), int((accepted & ~tied).sum())
        return with_ties(replace(row, cascade=choice), ties=ties, sided=sided)

    def _curve_of(self, guarantee: Guarantee) -> ThresholdCurve:
        return self.pac_pairs.curve if guarantee == "pac" else self.curve

    def more_examples(self, row: Threshold) -> int | None:
        """The fewest further examples with which a row can be feasible; None if unknown."""
        if self.unlabelled or self.cascade is not None:
            return None
        curve = self._curve_of(row.guarantee)
        return more_examples(
            curve, row.alpha, row.guarantee, row.delta, off_task=self.n - self.ties - curve.n
        )

    @cached_property
    def infeasible(self) -> tuple[tuple[Threshold, int | None], ...]:
        """The infeasible standard rows, each with its `more_examples`."""
        rows = [row for row in self.standard_rows if not row.feasible and not row.labels_missing]
        return tuple((row, self.more_examples(row)) for row in rows)

    @cached_property
    def feasible_alphas(self) -> Mapping[Guarantee, tuple[AlphaInterval, ...]]:
        """All feasible alphas of each guarantee, "pac" at the standard delta.

        Empty until all pairs have labels.
        """
        if self.unlabelled or self.cascade is not None:
            return {}
        return {
            guarantee: feasible_alphas(self._curve_of(guarantee), guarantee, STANDARD_DELTA)
            for guarantee in GUARANTEES
        }

    @cached_property
    def undecided(self) -> int:
        """Number of on-task examples without a preference of the judge."""
        return int((self._undecided & ~self.table.tied).sum())

    @cached_property
    def _undecided(self) -> NDArray[np.bool_]:
        undecided: NDArray[np.bool_] = self.preferences.p_bar == 0.5
        return self.on_task & undecided

    @cached_property
    def standard_rows(self) -> tuple[Threshold, ...]:
        """Both guarantees at the standard alphas, "pac" at the standard delta."""
        return tuple(
            self.row(alpha, guarantee, STANDARD_DELTA if guarantee == "pac" else None)
            for guarantee in self.guarantees
            for alpha in STANDARD_ALPHAS
        )

    @cached_property
    def risk_coverage(self) -> tuple[CurvePoint, ...]:
        """The risk-coverage curve at 200 scores at most, evenly spread over the ranks.

        Empty unless all pairs have labels.
        """
        if self.unlabelled:
            return ()
        curve, n = self.curve, self.n - self.ties
        count = min(len(curve.scores), _CURVE_POINTS)
        points = []
        for i in np.unique(np.linspace(0, len(curve.scores) - 1, count).astype(int)):
            score = float(curve.scores[i])
            accepted, errors = curve.accepted_at(score, undecided=self.undecided)
            if accepted:
                risk_level = float(curve.risk_levels[i])
                points.append(
                    CurvePoint(
                        uncertainty=score,
                        coverage=accepted / n,
                        empirical_risk=errors / accepted,
                        risk_level=risk_level,
                    )
                )
        return tuple(points)
