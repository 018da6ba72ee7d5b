"""The routes of audits: drawn judgments, their labels, alarms, and absorption into a set."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from app.api.answers.sets import absorb_report
from app.api.problems import PROBLEMS
from app.api.requests.models import NOT_BLANK, CalibrationName, DryRun, EvenIfInfeasible, Strict
from app.api.routing import JsonRequest, JsonRoute, SetName, as_json
from app.audits import listing
from app.audits.entries import DrawId, LabelEntry
from app.core.comparison import Label
from app.flow import off_loop
from scope_judge.records import AbsorbReport, AuditLabels, AuditPage, AuditTrail, Resumed, Status

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


router = APIRouter(tags=["auditing"], route_class=JsonRoute, responses=PROBLEMS)

OfCalibration = Annotated[
    CalibrationName | None, Query(description="Only of this calibration set.")
]
After = Annotated[int, Query(ge=0, le=2**53 - 1, description="`next_after` of the previous page.")]
# The texts of one audit may have 128 KiB.
MOST_TEXTS = 20
# Every entry is a read of the store.
MOST_ENTRIES = 100


@router.get("/audits", response_model=AuditPage)
async def list_audits(
    request: JsonRequest,
    calibration: OfCalibration = None,
    status: Annotated[Status | None, Query(description="Only with this status.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LABELS, description="Most audits to list.")] = 100,
    after: After = 0,
    texts: Annotated[
        bool,
        Query(description=f"Only open audits whose texts the service has, at most {MOST_TEXTS}."),
    ] = False,
) -> Response:
    """Lists audits without verdicts, oldest first.

    With `texts`, these are the oldest open audits with their texts, after an alarm those that end
    it first, in an order that depends on the key and with a random response as response A. That
    needs the role `label` or `calibrate`.
    """
    caller = request.caller
    if calibration is not None:
        caller.check_calibration(calibration)
    if texts:
        caller.check_may_label()
        page = await listing.page_to_label(
            request.services.auditor,
            request.services.store,
            calibration=calibration,
            person=caller.name,
            after=after,
            limit=min(limit, MOST_TEXTS),
            may_use=caller.may_use,
        )
    else:
        page = await listing.page(
            request.services.auditor,
            calibration=calibration,
            status=status,
            after=after,
            limit=limit,
            may_use=caller.may_use,
        )
    return await off_loop(as_json, lambda: page)


@router.post("/audits/labels", response_model=AuditLabels)
async def label_audits(body: AuditLabelsIn, request: JsonRequest) -> Response:
    """Labels audits, all in one step.

    The first label of a pair counts. Its author can correct it, and so can a key that also has the
    role `admin`. The label `none`, with a `reason`, closes an audit that nobody can label.
    """
    caller = request.caller
    labels = body.entries(by=caller.name, at=request.services.auditor.now())
    taken = await request.services.auditor.label(
        labels, may_use=caller.may_use, yields="admin" not in caller.roles
    )
    return as_json(lambda: taken)


@router.get("/calibrations/{name}/audit-trail", response_model=AuditTrail)
async def list_audit_trail(
    name: SetName,
    request: JsonRequest,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="Most entries to list.")] = 100,
    before: Annotated[
        int | None, Query(ge=1, le=2**53 - 1, description="`next_before` of the previous page.")
    ] = None,
) -> Response:
    """Lists alarms, changed labels and closed audits of a set, newest first."""
    await request.services.auditor.catch_up()
    entries = request.services.auditor.book(name).page_of_trail(before, limit)
    following = entries[-1].position if len(entries) == limit else None
    page = AuditTrail(name=name, entries=tuple(entries), next_before=following)
    return await off_loop(as_json, lambda: page)


@router.post("/calibrations/{name}/resume", response_model=Resumed)
async def resume(name: SetName, body: ResumeIn, request: JsonRequest) -> Response:
    """Ends the alarms of a set. Its verdicts are accepted again, and its audits start over."""
    calibration = await request.services.calibrations.get(name)
    ended = await request.services.monitor.resume(
        calibration, reason=body.reason, by=request.caller.name
    )
    resumed = tuple(alarm.ended_alarm for alarm in ended)
    return as_json(lambda: Resumed(name=name, resumed=resumed))


@router.post("/calibrations/{name}/absorb", response_model=AbsorbReport)
async def absorb(name: SetName, body: AbsorbIn, request: JsonRequest) -> Response:
    """Turns labeled audits into examples of a set, as one new version.

    After an alarm, the first audits since the set's first active alarm replace all examples. Their
    number is `audits` of the monitor's `recovery`; it follows from alpha, delta and guarantee.
    Without an alarm, the audits up to the first open one are added.
    """
    change, chosen = await request.services.changes.absorb(
        name,
        by=request.caller.name,
        dry_run=body.dry_run,
        even_if_infeasible=body.even_if_infeasible,
    )
    return await off_loop(as_json, partial(absorb_report, change, chosen, dry_run=body.dry_run))
