"""JSON of what keys have used."""

from dataclasses import asdict
from datetime import datetime

from pydantic import Field

from app.observability.usage import UsageByKey
from app.wire.answers import Out


class KeyUsageOut(Out):
    """The use of one key since the replica started."""

    key: str = Field(
        description="Name of the key; `anonymous` if the service has no keys, `service` for the "
        "service's own checks."
    )
    comparisons: int = Field(
        description="Comparisons sent to the judge, to be judged or to be calibrated with."
    )
    prompt_tokens: int = Field(
        description="Tokens of their prompts, in both orders; 0 if the judge does not count them."
    )
    verdicts: int = Field(description="Judgments with a verdict.")
    abstentions: int = Field(description="Judgments without one.")
    errors: int = Field(description="Comparisons that got an error instead of a judgment.")


class UsageOut(Out):
    """The use of keys since the replica started."""

    since: datetime = Field(description="Start of this replica, in UTC.")
    keys: list[KeyUsageOut] = Field(
        description="The keys, by name; without the role `admin` the caller's."
    )

    @classmethod
    def of(cls, usage: UsageByKey, *, only: str | None) -> "UsageOut":
        """Converts the use of all keys, or of `only` one."""
        rows = usage.rows() if only is None else [(only, usage[only])]
        return cls(
            since=usage.since,
            keys=[KeyUsageOut(key=key, **asdict(row)) for key, row in rows],
        )
