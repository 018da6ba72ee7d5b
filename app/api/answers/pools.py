"""Builds the records of pairs without labels."""

from collections.abc import Sequence

from app.api.answers.records import usage_of_request
from app.core.calibration import Calibration
from app.sets.trail import SetChange
from scope_judge import records


def pool_report(
    change: SetChange,
    digests: Sequence[str | None],
    errors: Sequence[records.ExampleError],
) -> records.PoolReport:
    """Converts a report.

    Args:
        change: The new version and the counts.
        digests: Digest of each posted pair; None for those that failed.
        errors: All failed pairs: those of the change, and those that could not be parsed.
    """
    calibration = change.calibration
    return records.PoolReport(
        name=calibration.name,
        version=calibration.version,
        n=calibration.n,
        labelled=calibration.labelled,
        unlabelled=calibration.unlabelled,
        pool_ties=calibration.ties,
        added=change.added,
        known=change.updated,
        failed=len(errors),
        digests=tuple(digests),
        errors=tuple(errors),
        usage=usage_of_request(),
    )


def next_labels(
    calibration: Calibration, *, alpha: float, delta: float, limit: int
) -> records.NextLabels:
    """Runs the tests of "pac" as far as labels reach.

    Args:
        calibration: The set.
        alpha: In (0, 1).
        delta: In (0, 1).
        limit: Most digests.
    """
    row = calibration.row(alpha, "pac", delta)
    pairs = calibration.pac_pairs
    digests = calibration.pac_digests(pairs.needed(alpha, delta).places)
    return records.NextLabels(
        name=calibration.name,
        version=calibration.version,
        alpha=alpha,
        delta=delta,
        n=pairs.curve.n,
        labelled=pairs.curve.n - len(pairs.unlabelled),
        needed=len(digests),
        complete=not digests,
        threshold=row.threshold if row.feasible else None,
        feasible=row.feasible,
        digests=tuple(digests[:limit]),
        words=_decision(len(digests) or None, alpha=alpha),
    )


def _decision(needed: int | None, *, alpha: float) -> str:
    """Says how many labels of a pool are missing before the next test of its threshold."""
    if needed is None:
        return f"The threshold at alpha {alpha:g} is decided."
    labels = "1 more label" if needed == 1 else f"{needed} more labels"
    return f"{labels} until the next test of the threshold at alpha {alpha:g}."
