"""The folds of the log of audits: old draws that only their counts are left of.

`retention` decides what is folded, and why that changes no figure of the service.
"""

from app.service.auditing.entries import Decider, Fold, FoldedCount


class Folds:
    """The state of all folds: sums over their entries in the log."""

    def __init__(self) -> None:
        # Name of a set -> time of its newest folded comparison.
        self._until = dict[str, float]()
        self._counts = dict[str, dict[Decider, FoldedCount]]()

    def apply(self, fold: Fold) -> None:
        """Adds one fold."""
        name = fold.calibration
        self._until[name] = max(fold.until, self._until.get(name, fold.until))
        counts = self._counts.setdefault(name, {})
        for count in fold.counts:
            before = counts.get(count.decider)
            counts[count.decider] = count if before is None else before + count

    def until(self, calibration: str) -> float | None:
        """Returns when the newest folded comparison of a set was first judged; None without one."""
        return self._until.get(calibration)

    def counts(self, calibration: str) -> list[FoldedCount]:
        """Returns the folded judgments of a set by version and criterion, oldest first."""
        return sorted(self._counts.get(calibration, {}).values(), key=lambda each: each.first_at)
