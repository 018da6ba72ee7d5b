"""Builds the record of what keys have used."""

from dataclasses import asdict

from app.observability.usage import UsageByKey
from scope_judge import records


def usage_of(used: UsageByKey, *, only: str | None) -> records.Usage:
    """Converts the use of all keys, or of `only` one."""
    rows = used.rows() if only is None else [(only, used[only])]
    return records.Usage(
        since=used.since.isoformat().replace("+00:00", "Z"),
        keys=tuple(records.KeyUsage(key=key, **asdict(row)) for key, row in rows),
    )
