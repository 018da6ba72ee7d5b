"""JSON about the absorption of labelled audits: what is asked, and what it does to the set."""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from app.service.auditing.absorption import AbsorbReport, Asked, Moment
from app.wire.changes import ChangeOut, change_fields
from app.wire.requests import DryRun, Replace, Strict

_NOTHING_ASKED = (
    'nothing is absorbed without a time: give `since`, such as "2026-11-22 17:39" (UTC) or "alarm",'
    ' or send "all": true for every labelled audit of the set'
)


def _moment(value: object) -> object:
    """The time that a text says, or the name of an alarm; raises ValueError for anything else."""
    if value is None or value == "alarm":
        return value
    if not isinstance(value, str):
        raise ValueError("a time is a text, such as 2026-11-22 17:39 (UTC)")
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        moment.timestamp()
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None
    except ValueError:
        raise ValueError(
            'this is not an ISO 8601 time, such as 2026-11-22 17:39 (UTC), and not "alarm"'
        ) from None


MomentIn = Annotated[datetime | Literal["alarm"], BeforeValidator(_moment)]


# The document says what `_one_begin` checks.
_ONE_BEGIN: JsonDict = {
    "oneOf": [
        {
            "required": ["all"],
            "properties": {
                "all": {"const": True},
                "since": {"type": "null"},
                "audits": {"type": "null"},
            },
        },
        {
            "required": ["since"],
            "properties": {"all": {"const": False}, "since": {"not": {"type": "null"}}},
        },
    ],
    "anyOf": [
        {"properties": {"begin": {"const": False}}},
        {
            "required": ["since", "audits"],
            "properties": {
                "since": {"const": "alarm"},
                "audits": {"type": "integer"},
                "dry_run": {"const": False},
            },
        },
    ],
}


class AbsorbIn(Strict):
    """The labelled audits that become examples of a calibration set.

    A time without a time zone is UTC. `alarm` is the time at which the newest active alarm rang.
    """

    model_config = ConfigDict(json_schema_extra=_ONE_BEGIN)

    since: MomentIn | None = Field(
        None,
        description="Only comparisons first judged since this time, or since the newest `alarm`. "
        "Required without `all`.",
    )
    all: bool = Field(False, description="Absorb audits of all times.")
    audits: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="Absorb only the first so many audits. After an alarm: the number of `begin`, "
        "or `audits` of the monitor's `recovery`.",
    )
    until: MomentIn | None = Field(
        None,
        description="Only comparisons first judged before this time (or `alarm`). Choose it before "
        "you see labels.",
    )
    replace: Replace = False
    unlabelled: Literal["refuse", "leave_out"] = Field(
        "refuse",
        description="If audits have no label: `refuse`, or `leave_out` these.",
    )
    even_if_infeasible: bool = Field(
        False, description="Continue even if an alpha in use gets no more verdicts."
    )
    even_if_unsafe: bool = Field(
        False,
        description="Continue even if the threshold breaks its promise.",
    )
    begin: bool = Field(
        False,
        description="Absorb nothing, only fix `audits`.",
    )
    dry_run: DryRun = False

    @model_validator(mode="after")
    def _one_begin(self) -> Self:
        if self.all and self.since is not None:
            raise ValueError('give `since` or "all": true, not both')
        if not self.all and self.since is None:
            raise ValueError(_NOTHING_ASKED)
        if self.audits is not None and self.since is None:
            raise ValueError("`audits` needs `since`, because it counts from that time on")
        if self.begin and (self.since != "alarm" or self.audits is None or self.dry_run):
            raise ValueError(
                '`begin` needs "since": "alarm" and `audits`, and changes no set, so it has no dry '
                "run"
            )
        return self

    @property
    def asked(self) -> Asked:
        """The request as the service takes it."""
        return Asked(
            since=_seconds(self.since),
            until=_seconds(self.until),
            audits=self.audits,
            replace=self.replace,
            leave_out=self.unlabelled == "leave_out",
            even_if_infeasible=self.even_if_infeasible,
            even_if_unsafe=self.even_if_unsafe,
        )


def _seconds(moment: datetime | Literal["alarm"] | None) -> Moment | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment


class AbsorbOut(ChangeOut):
    """The calibration set after labelled audits were absorbed, with their counts.

    `effects` has the criteria in use: those of draws by the current version and of the absorbed
    audits, and those that the answering process judged by lately. `note` says the same in a
    sentence. With `dry_run` nothing has changed: the set is described as it would be, with the
    number of the current version. After `begin`, the set is described as it is.
    """

    ties: int
    unlabelled_audits: int
    other_judge: int
    rates: list[float]

    @classmethod
    def of(cls, report: AbsorbReport, *, dry_run: bool) -> "AbsorbOut":
        """Converts a report."""
        return cls(
            **change_fields(report.change, dry_run=dry_run),
            ties=report.change.batch.ties,
            unlabelled_audits=report.unlabelled,
            other_judge=report.other_judge,
            rates=list(report.rates),
        )
