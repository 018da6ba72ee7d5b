"""JSON answers about pairs without labels."""

from app.core.calibration import Calibration
from app.service.calibration.calibrator import PoolReport
from app.wire.answers import Out, RequestUsageOut
from app.wire.calibrations import ExampleErrorOut


class PoolOut(Out):
    """The calibration set after pairs without labels were added to it.

    `digests` has the digest of each posted pair, in order, and null for a pair that failed. The
    answer of GET /calibrations/{name}/next names pairs by their digests.
    """

    name: str
    version: int
    n: int
    labelled: int
    unlabelled: int
    pool_ties: int
    added: int
    known: int
    failed: int
    digests: list[str | None]
    errors: list[ExampleErrorOut]
    usage: RequestUsageOut

    @classmethod
    def of(
        cls, report: PoolReport, digests: list[str | None], errors: list[ExampleErrorOut]
    ) -> "PoolOut":
        """Converts a report.

        Args:
            report: The new version and the counts.
            digests: Digest of each posted pair; None for those that failed.
            errors: All failed pairs: those in the report, and those that could not be parsed.
        """
        calibration = report.outcome.calibration
        return cls(
            name=calibration.name,
            version=calibration.version,
            n=calibration.n,
            labelled=calibration.labelled,
            unlabelled=calibration.unlabelled,
            pool_ties=calibration.ties,
            added=report.outcome.added,
            known=report.outcome.updated,
            failed=len(errors),
            digests=digests,
            errors=errors,
            usage=RequestUsageOut.of_request(),
        )


class NextOut(Out):
    """The pairs to label next for one alpha and delta under "pac".

    `n` is the number of pairs that `pac` counts, and `labelled` of these have a label. `needed` is
    the number of labels before the next test, and `digests` names the first of those pairs, by
    rising uncertainty. Label them in this order. `complete` is true once the threshold is known. It
    is then the threshold that labels for all pairs would give; null if nothing can be accepted.
    """

    name: str
    version: int
    alpha: float
    delta: float
    n: int
    labelled: int
    needed: int
    complete: bool
    threshold: float | None
    feasible: bool
    digests: list[str]
    words: str

    @classmethod
    def of(cls, calibration: Calibration, *, alpha: float, delta: float, limit: int) -> "NextOut":
        """Runs the tests as far as labels reach.

        Args:
            calibration: The set.
            alpha: In (0, 1).
            delta: In (0, 1).
            limit: Most digests.
        """
        row = calibration.row(alpha, "pac", delta)
        pairs = calibration.pac_pairs
        digests = calibration.pac_digests(pairs.needed(alpha, delta).places)
        return cls(
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
            digests=digests[:limit],
            words=_decision(len(digests) or None, alpha=alpha),
        )


def _decision(needed: int | None, *, alpha: float) -> str:
    """Says how many labels of a pool are missing before the next test of its threshold."""
    if needed is None:
        return f"The threshold at alpha {alpha:g} is decided."
    labels = "1 more label" if needed == 1 else f"{needed} more labels"
    return f"{labels} until the next test of the threshold at alpha {alpha:g}."
