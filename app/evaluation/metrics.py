"""The paper's metrics: quality of a confidence, and risk and coverage of a selection rule."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from app.core.diagnostics import auroc, expected_calibration_error


class Quality(NamedTuple):
    """The columns of the paper's tables on uncertainty (SCOPE, appendix on metrics).

    Args:
        accuracy: Share of right verdicts; None without verdicts.
        ece: Expected calibration error over 10 uniform bins; None without verdicts.
        auroc: Area under the ROC curve; None if all verdicts are right or all are wrong.
        auprc: Average precision; None if no verdict is right.
    """

    accuracy: float | None
    ece: float | None
    auroc: float | None
    auprc: float | None


def quality(confidence: ArrayLike, error: ArrayLike) -> Quality:
    """Measures a confidence of shape (n,) in [0, 1] against the labels.

    Args:
        error: Shape (n,). True where the verdict is wrong or there is no preference.
    """
    right = ~np.asarray(error, dtype=bool)
    return Quality(
        accuracy=float(right.mean()) if len(right) else None,
        ece=expected_calibration_error(confidence, right),
        auroc=auroc(confidence, right),
        auprc=auprc(confidence, right),
    )


def auprc(confidence: ArrayLike, right: ArrayLike) -> float | None:
    """Average precision of a confidence; right verdicts are the positives.

    None if no verdict is right.
    """
    sure, is_right = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
    if not is_right.any():
        return None
    order = np.argsort(-sure, kind="stable")
    # Equal confidences are one threshold: the last of them counts.
    ends = np.append(np.flatnonzero(np.diff(sure[order])), len(sure) - 1)
    found = np.cumsum(is_right[order])[ends]
    recall = np.diff(found, prepend=0) / found[-1]
    return float((recall * found / (ends + 1)).sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class RiskCoverage:
    """Coverage and risk of one rule at one alpha over many splits.

    Risk has three readings, because a split may accept nothing.

    Args:
        coverage, coverage_std: Mean and standard deviation over splits of the accepted share.
        risk, risk_std: The same of the share of errors among the accepted; 0 for a split that
            accepts nothing. The paper's tables report this reading.
        ratio_of_sums: Errors of all splits divided by accepted of all splits; None if no split
            accepts anything. The paper's theorem bounds this reading.
        share_above_alpha: Share of splits whose risk exceeds alpha. This is the chance that a user
            with one calibration exceeds alpha.
    """

    coverage: float
    coverage_std: float
    risk: float
    risk_std: float
    ratio_of_sums: float | None
    share_above_alpha: float
    splits: int

    @classmethod
    def over_splits(
        cls, accepted: ArrayLike, errors: ArrayLike, tested: ArrayLike, *, alpha: float
    ) -> "RiskCoverage":
        """Summarizes the test halves.

        Args:
            accepted: Shape (splits,). Number of test points at or below the threshold.
            errors: Shape (splits,). Number of errors among the accepted points.
            tested: Shape (splits,) or a number. Number of test points, at least 1.

        Raises:
            ValueError: There is no split, or a split without test points.
        """
        took, wrong = np.asarray(accepted, dtype=np.int64), np.asarray(errors, dtype=np.int64)
        offered = np.asarray(tested, dtype=np.int64)
        if not len(took) or (offered < 1).any():
            raise ValueError("risk and coverage need at least one split and one test point each")
        coverage = took / offered
        risk = wrong / np.maximum(took, 1)
        return cls(
            coverage=float(coverage.mean()),
            coverage_std=float(coverage.std()),
            risk=float(risk.mean()),
            risk_std=float(risk.std()),
            ratio_of_sums=float(wrong.sum() / took.sum()) if took.any() else None,
            share_above_alpha=float((risk > alpha).mean()),
            splits=len(took),
        )
