"""Counts the use of each key since the start of this replica."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from app.observability.gauges import Row


@dataclass(kw_only=True, slots=True)
class KeyUsage:
    """The use of one key.

    Args:
        comparisons: Comparisons sent to the judge, to be judged or to be calibrated with.
        prompt_tokens: Tokens of their prompts in both orders; 0 for a judge that counts none.
        verdicts: Judgments with a verdict.
        abstentions: Judgments without one.
        errors: Comparisons that got an error instead of a judgment.
    """

    comparisons: int = 0
    prompt_tokens: int = 0
    verdicts: int = 0
    abstentions: int = 0
    errors: int = 0


class UsageByKey:
    """Adds up the use of each key, by its name; keys come from the key file, so there are few.

    `since` is the time of the start, in UTC.
    """

    def __init__(self) -> None:
        self.since = datetime.now(UTC).replace(microsecond=0)
        self._keys: dict[str, KeyUsage] = {}

    def __getitem__(self, key: str) -> KeyUsage:
        """The use of a key so far; a caller adds to its counts on the event loop."""
        return self._keys.setdefault(key, KeyUsage())

    def rows(self) -> list[tuple[str, KeyUsage]]:
        """The keys that were used, by name."""
        return sorted(self._keys.items())

    def metrics(self) -> Iterator[Row]:
        """Yields each count of each key."""
        for key, usage in self.rows():
            for count in fields(KeyUsage):
                yield f"key_{count.name}", (key,), getattr(usage, count.name)
