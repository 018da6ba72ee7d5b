"""JSON answers about pairs without labels."""

from app.core.calibration import Calibration
from app.core.clusters import ClusterRule
from app.service.calibration.calibrator import PoolReport
from app.service.labelling.progress import decision_of
from app.wire.answers import Out, RequestUsageOut
from app.wire.calibrations import ExampleErrorOut, LooksOut


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
    is then the threshold that labels for all pairs would give; null if nothing can be accepted. In
    a set with `by_group`, it names the pairs of each group with separate thresholds, too.

    In a set with planned `looks`, all this is about the pairs of the next look, and `looks` has the
    results so far, at this alpha and delta. `complete` says that a look suffices, or that it was
    the last one; `threshold` is that of the last look that was taken.
    """

    name: str
    version: int
    alpha: float
    delta: float
    clusters: ClusterRule
    n: int
    labelled: int
    needed: int
    complete: bool
    threshold: float | None
    feasible: bool
    digests: list[str]
    looks: LooksOut | None
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
        looks = calibration.looks
        row = calibration.row(alpha, "pac", delta)
        told = LooksOut.of(looks, calibration.taken_looks(alpha, delta))
        asked, share = calibration.asked(alpha, delta)
        pairs = asked.pac_pairs
        digests = asked.pac_digests(pairs.needed(alpha, share).places)
        for part in calibration.own_calibrations.values():
            digests += part.pac_digests(part.pac_pairs.needed(alpha, delta).places)
        digests = list(dict.fromkeys(digests))
        lacks_pairs = looks is not None and calibration.n < looks.last
        if lacks_pairs:
            digests = []
        decision = decision_of(len(digests) or None, alpha=alpha) if not lacks_pairs else ""
        return cls(
            name=calibration.name,
            version=calibration.version,
            alpha=alpha,
            delta=delta,
            clusters=calibration.clusters,
            n=pairs.curve.n,
            labelled=pairs.curve.n - len(pairs.unlabelled),
            needed=len(digests),
            complete=not digests and not lacks_pairs,
            threshold=row.threshold if row.feasible else None,
            feasible=row.feasible,
            digests=digests[:limit],
            looks=told,
            words=" ".join(filter(None, (_look_words(calibration, alpha, delta), decision))),
        )


def _look_words(calibration: Calibration, alpha: float, delta: float) -> str:
    """Says how far the planned looks of a set are; "" without any."""
    looks = calibration.looks
    if looks is None:
        return ""
    if calibration.n < looks.last:
        return (
            f"The last look has {looks.last} pairs, and the pool has {calibration.n}: add the rest "
            "before the first label."
        )
    taken = calibration.taken_looks(alpha, delta)
    words = ""
    if taken:
        last = taken[-1]
        words = (
            f"Look {len(taken)} of {len(looks.sizes)}, at {last.size} pairs, accepts "
            f"{last.coverage:.0%} of them"
        )
        if looks.suffices(last.coverage):
            return f"{words}: stop here."
        words += f", fewer than the {looks.until_coverage:.0%} that suffice. "
    if len(taken) == len(looks.sizes):
        return f"{words}It was the last look."
    return f"{words}The next look is at {looks.sizes[len(taken)]} pairs."
