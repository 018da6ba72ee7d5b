"""The routes for people who label: the queue of a set, their answers, and links for reviewers."""

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
    """Gives open audits of a set to a person who labels, oldest first and blind.

    Nobody else gets these pairs for ten minutes, or one other person with two `reviewers`. Asking
    again gives the same ones.
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
    """Lists the digests of open audits whose texts the service does not have, oldest first.

    A person with a file of the pairs finds them in it, and takes them from the queue by digest.
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
    """Takes answers to pairs of the queue, all in one step; sending them again changes nothing.

    The first label of a pair stays, and only the person who gave it can correct it here. The
    choice `none`, with a reason, closes an audit that nobody can label. With two `reviewers`, two
    equal answers are the label of a pair, and a person has one answer.
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
    """Gives pairs back without an answer; for ten minutes this person gets them last."""
    caller.check_calibration(name)
    released = await services.queue.release(
        name, body.tickets, reviewer=caller.reviewer(body.reviewer)
    )
    return ReleaseOut.of(released)


@router.get("/calibrations/{name}/disagreements", response_model=DisagreementsOut, responses=OF_ONE)
async def list_disagreements(
    name: Name, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Says how far two people agree, and lists the pairs on which they do not, oldest first.

    POST /audits/labels decides a pair. The answer does not name the two people.
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
    """Makes a link with which a person can label this set and do nothing else, until it expires.

    It ends before with the key that made it, and with that key's role.
    """
    caller.check_calibration(name)
    keys: Keys | None = request.app.state.keys
    if keys is None:
        raise ForbiddenError(
            "a service without keys makes no links, because other machines cannot reach it: make "
            "a key file (`scope-judge keys add`), and start the service with it"
        )
    await services.calibrations.get(name)
    made = keys.label_link(caller, calibration=name, reviewer=body.reviewer, hours=body.hours)
    return LabelLinkOut.of(
        name, reviewer=body.reviewer, token=made.token, expires=made.link.expires
    )
