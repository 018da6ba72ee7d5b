"""JSON about the absorption of labeled audits: what is asked, and what it does to the set."""

from pydantic import Field

from app.service.auditing.absorption import AbsorbReport
from app.wire.changes import ChangeOut, change_fields
from app.wire.requests import DryRun, Strict


class AbsorbIn(Strict):
    """The absorption of a set's labeled audits; the service chooses which ones."""

    even_if_infeasible: bool = Field(
        False, description="Continue even if an alpha in use gets no more verdicts."
    )
    dry_run: DryRun = False


class AbsorbOut(ChangeOut):
    """The calibration set after labeled audits were absorbed, with their counts.

    After an alarm, the first audits since the first alarm replace all examples (`replaced`).
    Without one, audits up to the first open one are added. `effects` has the criteria in use: those
    of draws by the current version and of the absorbed audits, and those that the answering process
    judged by lately. `note` says the same in a sentence. With `dry_run` nothing has changed: the
    set is described as it would be, with the number of the current version.
    """

    replaced: bool
    ties: int
    unlabelled_audits: int
    waiting: int
    other_judge: int
    rates: list[float]

    @classmethod
    def of(cls, report: AbsorbReport, *, dry_run: bool) -> "AbsorbOut":
        """Converts a report."""
        return cls(
            **change_fields(report.change, dry_run=dry_run),
            replaced=report.replaced,
            ties=report.change.batch.ties,
            unlabelled_audits=report.unlabelled,
            waiting=report.waiting,
            other_judge=report.other_judge,
            rates=list(report.rates),
        )
