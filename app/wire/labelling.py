"""JSON requests and answers about the queue of pairs that people label, and links to it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from app.core.comparison import Side
from app.core.errors import RequestError
from app.service.auditing.entries import written
from app.service.labelling.disagreements import Disagreement, Disagreements
from app.service.labelling.queue import (
    MOST_TAKEN,
    AnswerReport,
    LeasedPair,
    PairAnswer,
    QueueState,
    Released,
    Taken,
)
from app.service.labelling.tickets import TICKET
from app.service.labelling.waiting import MOST_DIGESTS, Textless
from app.wire.answers import Out
from app.wire.audits import Reason
from app.wire.problems import Problem, problem_of
from app.wire.requests import DIGEST, CalibrationName, Digest, Strict

MOST_ANSWERS = 20
# Enough for the pairs that others have, or that this person skips.
MOST_NAMED = 200
# People are named like keys and sets.
Reviewer = Annotated[CalibrationName, Field(description="Name of the reviewer.")]
ReviewerOrKey = Annotated[
    Reviewer | None,
    Field(description="Name of the reviewer (default: the key's)."),
]
# An invalid ticket is an error of its answer, not of the request.
Ticket = Annotated[str, Field(max_length=200)]
Reviewers = Annotated[
    int,
    Field(
        ge=1,
        le=2,
        description="Reviewers per pair, each blind to the other.",
    ),
]


class QueueIn(Strict):
    """Asks for pairs to label."""

    take: Annotated[int, Field(ge=1, le=MOST_TAKEN, description="Most pairs to lease.")]
    reviewer: ReviewerOrKey = None
    reviewers: Reviewers = 1
    digests: Annotated[
        list[Digest],
        Field(
            default_factory=list,
            max_length=MOST_NAMED,
            fail_fast=True,
            description="Digests of pairs whose texts the reviewer has, in audits or the pool, "
            "which are leased, too.",
        ),
    ]


class PairChoiceIn(Strict):
    """The better side of one pair, or a tie."""

    ticket: Ticket
    choice: Literal["left", "right", "tie"]

    @property
    def given(self) -> PairAnswer:
        """The answer as the service takes it."""
        return PairAnswer(ticket=self.ticket, choice=self.choice)


class PairCannotIn(Strict):
    """A pair that this person cannot label, and the reason."""

    ticket: Ticket
    choice: Literal["none"]
    reason: Reason

    @property
    def given(self) -> PairAnswer:
        """The answer as the service takes it."""
        return PairAnswer(ticket=self.ticket, choice=None, reason=self.reason)


class QueueAnswersIn(Strict):
    """Answers to pairs of the queue."""

    reviewer: ReviewerOrKey = None
    reviewers: Reviewers = 1
    answers: Annotated[
        list[PairChoiceIn | PairCannotIn],
        Field(min_length=1, max_length=MOST_ANSWERS, fail_fast=True),
    ]


class ReleaseIn(Strict):
    """Gives pairs back without an answer."""

    reviewer: ReviewerOrKey = None
    tickets: Annotated[
        list[Annotated[str, Field(pattern=f"{TICKET}|{DIGEST}")]],
        Field(min_length=1, max_length=MOST_ANSWERS, fail_fast=True),
    ]


class QueuePairOut(Out):
    """A pair to label, blind, with a random response on the left.

    `question`, `left` and `right` are null for a pair that the person named by its digest.
    """

    ticket: str
    question: str | None
    left: str | None
    right: str | None
    digest: str | None = Field(
        description="Digest of the pair if only the reviewer has its texts; else null."
    )
    is_pooled: bool = Field(
        description="Whether this is a pair of the pool: its label goes to POST /calibrate."
    )
    left_is_first: bool = Field(
        description="Whether the left response comes before the right one by their code points."
    )
    leased_until: str

    @classmethod
    def of(cls, leased: LeasedPair) -> "QueuePairOut":
        """Converts a pair."""
        text = leased.pair.text if leased.digest is None else None
        return cls(
            ticket=leased.ticket,
            question=None if text is None else text.question,
            left=None if text is None else text.left,
            right=None if text is None else text.right,
            digest=leased.digest,
            is_pooled=leased.is_pooled,
            left_is_first=leased.left_is_first,
            leased_until=written(leased.until),
        )


class QueueStateOut(Out):
    """The queue of a set after a request."""

    open: int = Field(description="Pairs that wait for a label and whose texts the service has.")
    disagreements: int = Field(
        description="Pairs with two different labels that wait for a decision."
    )
    leased: int = Field(description="Open pairs that are leased.")
    without_texts: int = Field(
        description="Pairs that wait for a label and whose texts the service does not have."
    )
    words: str = Field(description="Progress of the labelling, in a sentence.")


class QueueOut(QueueStateOut):
    """Pairs to label."""

    pairs: list[QueuePairOut]
    texts: Literal["kept", "off"]

    @classmethod
    def of(cls, taken: Taken) -> "QueueOut":
        """Converts pairs; long work for long texts."""
        return cls(
            pairs=[QueuePairOut.of(pair) for pair in taken.pairs],
            texts="kept" if taken.state.keeps_texts else "off",
            **_state(taken.state),
        )


class TextlessOut(Out):
    """The open audits of a set whose texts the service does not have, oldest first.

    A digest is the SHA-256 of a JSON list without spaces, with JSON escapes for all characters
    outside ASCII: the fingerprint, the turns of the question, and the texts of both responses, of
    which the first is the one that comes first by its code points. A plain question is one user
    turn, and a plain response is a list of one text:

        ["FINGERPRINT",[["user","Question?"]],[["Response 1"],["Response 2"]]]
    """

    fingerprint: str
    digests: Annotated[list[str], Field(max_length=MOST_DIGESTS)]
    total: int = Field(description="Number of these audits; the list has the oldest 100,000.")

    @classmethod
    def of(cls, textless: Textless) -> "TextlessOut":
        """Converts a list; long work for a long one."""
        return cls(
            fingerprint=textless.fingerprint,
            digests=list(textless.digests),
            total=textless.total,
        )


class AnswerErrorOut(Out):
    """An answer that was not taken."""

    index: int
    error: Problem


class QueueAnswersOut(QueueStateOut):
    """The effect of answers."""

    labelled: int
    corrected: int
    again: int
    errors: list[AnswerErrorOut]

    @classmethod
    def of(cls, report: AnswerReport) -> "QueueAnswersOut":
        """Converts a report."""
        return cls(
            labelled=report.labelled,
            corrected=report.corrected,
            again=report.again,
            errors=_errors(report.errors),
            **_state(report.state),
        )


class ReleaseOut(QueueStateOut):
    """The number of pairs that were given back."""

    released: int

    @classmethod
    def of(cls, released: Released) -> "ReleaseOut":
        """Converts the outcome."""
        return cls(released=released.released, **_state(released.state))


class LabelNoiseOut(Out):
    """Bounds on the share of labels that are flipped."""

    low: float
    high: float


class AgreementOut(Out):
    """How far the two people of each pair agree.

    The interval of kappa holds with 95%, and so does each bound of the label noise, which is about
    the pairs without ties. The lower one is safe as `label_noise` of the set.
    """

    pairs: int = Field(description="Pairs that two people labeled.")
    disagreements: int = Field(description="Pairs with two different labels.")
    kappa: float | None = Field(description="Cohen's kappa; null if chance explains all.")
    kappa_interval: tuple[float, float] | None
    label_noise: LabelNoiseOut | None


class DisagreementOut(Out):
    """A pair with two different labels, to be decided with POST /audits/labels."""

    id: str
    question: str
    left: str
    right: str
    left_label: Side = Field(description="The label that the response on the left stands for.")
    choices: list[Literal["left", "right", "tie", "none"]]

    @classmethod
    def of(cls, found: Disagreement) -> "DisagreementOut":
        """Converts a pair; long work for long texts."""
        text = found.pair.text
        return cls(
            id=found.pair.key,
            question=text.question,
            left=text.left,
            right=text.right,
            left_label=found.pair.left,
            choices=[choice or "none" for choice in found.choices],
        )


class DisagreementsOut(Out):
    """How far people agree, and the oldest pairs that wait for a decision, blind."""

    name: str
    words: str = Field(description="How often people agree, in two sentences.")
    agreement: AgreementOut
    open: int = Field(description="Pairs that wait for a decision.")
    pairs: list[DisagreementOut]

    @classmethod
    def of(cls, name: str, found: Disagreements) -> "DisagreementsOut":
        """Converts what was found; long work for long texts."""
        return cls(
            name=name,
            words=found.words,
            agreement=AgreementOut(**asdict(found.agreement)),
            open=found.open,
            pairs=[DisagreementOut.of(each) for each in found.shown],
        )


class LabelLinkIn(Strict):
    """Asks for a link with which one person can label a set for a while."""

    reviewer: Reviewer
    hours: Annotated[int, Field(ge=1, le=720, description="Hours until the link expires.")] = 72


class LabelLinkOut(Out):
    """A link for a reviewer: the page and the token, which is sent as `Authorization: Bearer`."""

    token: str
    path: str
    reviewer: str
    expires: str

    @classmethod
    def of(cls, name: str, *, reviewer: str, token: str, expires: float) -> "LabelLinkOut":
        """Makes the answer.

        Args:
            name: Name of the calibration set.
            reviewer: Name of the person.
            token: The token.
            expires: Its end in seconds since 1970.
        """
        return cls(
            token=token, path=f"/desk#label/{name}", reviewer=reviewer, expires=written(expires)
        )


def _state(state: QueueState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in QueueStateOut.model_fields}


def _errors(errors: Mapping[int, RequestError]) -> list[AnswerErrorOut]:
    return [
        AnswerErrorOut(index=index, error=problem_of(error))
        for index, error in sorted(errors.items())
    ]
