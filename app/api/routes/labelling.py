"""The routes for people who label: the queue of a set, answers, and links for reviewers."""

from functools import partial

from fastapi import APIRouter, Request, Response

from app.api.auth.keys import Keys
from app.api.bodies import JsonRoute
from app.api.dependencies import CurrentCaller, CurrentServices
from app.api.responses import ACCESS_ERRORS, STORE_ERRORS, as_json, error_responses
from app.api.routes.calibrations import OF_ONE, Name
from app.core.errors import CalibrationNotFoundError, ForbiddenError, LabelChangesError
from app.service.off_loop import off_loop
from app.wire.labelling import (
    DisagreementsOut,
    LabelLinkIn,
    LabelLinkOut,
    QueueAnswersIn,
    QueueAnswersOut,
    QueueIn,
    QueueOut,
    ReleaseIn,
    ReleaseOut,
    TextlessOut,
)

router = APIRouter(tags=["labelling"], route_class=JsonRoute)


@router.post("/calibrations/{name}/queue", response_model=QueueOut, responses=OF_ONE)
async def take_pairs(
    name: Name, body: QueueIn, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Leases open audits of a set to a reviewer, blind, oldest first.

    A lease lasts ten minutes. A repeated request returns the same pairs.
    """
    caller.check_calibration(name)
    taken = await services.queue.take(
        name,
        reviewer=caller.reviewer(body.reviewer),
        most=body.take,
        reviewers=body.reviewers,
        digests=body.digests,
    )
    return await off_loop(as_json, partial(QueueOut.of, taken))


@router.get("/calibrations/{name}/queue/textless", response_model=TextlessOut, responses=OF_ONE)
async def list_textless(name: Name, services: CurrentServices, caller: CurrentCaller) -> Response:
    """Lists the digests of open audits without texts, oldest first.

    If you have the texts, lease the pairs by digest.
    """
    caller.check_calibration(name)
    textless = await services.queue.textless(name)
    return await off_loop(as_json, partial(TextlessOut.of, textless))


@router.post(
    "/calibrations/{name}/queue/answers",
    response_model=QueueAnswersOut,
    responses=error_responses(
        *ACCESS_ERRORS, *STORE_ERRORS, CalibrationNotFoundError, LabelChangesError
    ),
)
async def answer_pairs(
    name: Name, body: QueueAnswersIn, services: CurrentServices, caller: CurrentCaller
) -> QueueAnswersOut:
    """Labels pairs of the queue, all in one step. A repeated request changes nothing.

    Only the author of the first label can correct it here. The choice `none`, with a `reason`,
    closes an audit. With two `reviewers`, two equal answers become the label.
    """
    caller.check_calibration(name)
    report = await services.queue.answer(
        name,
        [sent.given for sent in body.answers],
        reviewer=caller.reviewer(body.reviewer),
        reviewers=body.reviewers,
    )
    return QueueAnswersOut.of(report)


@router.post("/calibrations/{name}/queue/release", response_model=ReleaseOut, responses=OF_ONE)
async def release_pairs(
    name: Name, body: ReleaseIn, services: CurrentServices, caller: CurrentCaller
) -> ReleaseOut:
    """Returns leased pairs without an answer."""
    caller.check_calibration(name)
    released = await services.queue.release(
        name, body.tickets, reviewer=caller.reviewer(body.reviewer)
    )
    return ReleaseOut.of(released)


@router.get("/calibrations/{name}/disagreements", response_model=DisagreementsOut, responses=OF_ONE)
async def list_disagreements(
    name: Name, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Shows how often two people agree, and lists the pairs on which they do not.

    POST /audits/labels decides a pair.
    """
    caller.check_calibration(name)
    found = await services.disagreements.of(name)
    return await off_loop(as_json, partial(DisagreementsOut.of, name, found))


@router.post("/calibrations/{name}/label-links", response_model=LabelLinkOut, responses=OF_ONE)
async def make_label_link(
    name: Name,
    body: LabelLinkIn,
    request: Request,
    services: CurrentServices,
    caller: CurrentCaller,
) -> LabelLinkOut:
    """Creates a link with which a person can only label this set.

    It ends when it expires, or its key is revoked or loses the role.
    """
    caller.check_calibration(name)
    keys: Keys | None = request.app.state.keys
    if keys is None:
        raise ForbiddenError(
            "a service without keys cannot create links, because other machines cannot reach it: "
            "create a key file (`scope-judge keys add`) and start the service with it"
        )
    await services.calibrations.get(name)
    made = keys.label_link(caller, calibration=name, reviewer=body.reviewer, hours=body.hours)
    return LabelLinkOut.of(
        name, reviewer=body.reviewer, token=made.token, expires=made.link.expires
    )
