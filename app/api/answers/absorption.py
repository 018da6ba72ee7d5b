"""JSON about the absorption of labeled audits: what is asked, and what it does to the set."""

from pydantic import Field

from app.api.answers.changes import change_fields
from app.api.requests.models import DryRun, Strict
from app.audits.absorption import AbsorbReport
from scope_judge import records


class AbsorbIn(Strict):
    """The absorption of a set's labeled audits; the service chooses which ones."""

    even_if_infeasible: bool = Field(
        False, description="Continue even if an alpha in use gets no more verdicts."
    )
    dry_run: DryRun = False


def absorb_report(report: AbsorbReport, *, dry_run: bool) -> records.AbsorbReport:
    """Converts a report."""
    return records.AbsorbReport(
        **change_fields(report.change, dry_run=dry_run),
        replaced=report.replaced,
        ties=report.change.batch.ties,
        unlabelled_audits=report.unlabelled,
        waiting=report.waiting,
        other_judge=report.other_judge,
        rates=tuple(report.rates),
    )
