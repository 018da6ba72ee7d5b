"""JSON of what keys have used."""

from dataclasses import asdict
from datetime import datetime

from pydantic import Field

from app.observability.usage import UsageByKey
from app.wire.answers import Out


class KeyUsageOut(Out):
    """The use of one key since the replica started."""

    key: str = Field(
        description="Name of the key; `anonymous` without keys, `service` for the checks of the "
        "service."
    )
    comparisons: int = Field(
        description="Comparisons sent to the judge, for judging or calibration."
    )
    prompt_tokens: int = Field(
        description="Tokens of the prompts in both orders; 0 if the judge does not count them."
    )
    verdicts: int = Field(description="Judgments with a verdict.")
    abstentions: int = Field(description="Judgments without a verdict.")
    errors: int = Field(description="Comparisons that failed.")


class UsageOut(Out):
    """The use of keys since the replica started."""

    since: datetime = Field(description="Start of this replica, in UTC.")
    keys: list[KeyUsageOut] = Field(
        description="All keys by name for an admin; otherwise the caller's key."
    )

    @classmethod
    def of(cls, usage: UsageByKey, *, only: str | None) -> "UsageOut":
        """Converts the use of all keys, or of `only` one."""
        rows = usage.rows() if only is None else [(only, usage[only])]
        return cls(
            since=usage.since,
            keys=[KeyUsageOut(key=key, **asdict(row)) for key, row in rows],
        )
