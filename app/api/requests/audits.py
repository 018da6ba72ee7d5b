"""JSON requests about audits: labels of drawn judgments, and what follows from them."""

from typing import Annotated, Literal

from pydantic import Field

from app.api.requests.models import NOT_BLANK, DryRun, EvenIfInfeasible, Strict
from app.audits.entries import DrawId, LabelEntry
from app.core.comparison import Label

# Labels of people arrive in small numbers; this bounds the work on the event loop.
MOST_LABELS = 1000
# Reasons are for people who read the trail; the rows of audits keep them.
Reason = Annotated[str, Field(min_length=1, max_length=200, pattern=NOT_BLANK)]
DrawnId = Annotated[DrawId, Field(description="`audit.id` of a judgment.")]


class AuditLabelIn(Strict):
    """The label of one drawn judgment."""

    id: DrawnId
    label: Label = Field(
        description="The better response in that judgment's order (`A`, `B`), or `tie`."
    )


class AuditClosingIn(Strict):
    """A drawn judgment that nobody can label."""

    id: DrawnId
    label: Literal["none"] = Field(description="`none` closes the audit.")
    reason: Reason = Field(description="Why nobody can label it, for the trail.")


class AuditLabelsIn(Strict):
    """Labels of drawn judgments."""

    labels: Annotated[
        list[AuditLabelIn | AuditClosingIn],
        Field(min_length=1, max_length=MOST_LABELS, fail_fast=True),
    ] = Field(description="The labels; the last one of an audit counts.")

    def entries(self, *, by: str, at: float) -> list[LabelEntry]:
        """The labels as the service takes them from a key at a time."""
        return [
            LabelEntry(
                id=sent.id,
                label=sent.label,
                by=by,
                at=at,
                reason=sent.reason if isinstance(sent, AuditClosingIn) else None,
            )
            for sent in self.labels
        ]


class ResumeIn(Strict):
    """The reason why judgments of a set are accepted again after an alarm."""

    reason: Reason = Field(description="Why the verdicts are usable again, for the trail.")


class AbsorbIn(Strict):
    """The absorption of a set's labeled audits; the service chooses which ones."""

    even_if_infeasible: EvenIfInfeasible = False
    dry_run: DryRun = False
