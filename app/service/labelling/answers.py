"""The answers of a person who labels, kept durably.

No text is kept: an answer has the key of its pair, and the response that was shown on the left.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from app.core.comparison import Label
from app.service.labelling.pairs import BlindPair

SKIP = "skip"
# An audit that nobody can label; pairs of a pool do not have this answer.
NONE = "none"


class Keeper(Protocol):
    """Entries by the key of their pair, which are durable when `append` returns."""

    results: dict[str, dict[str, Any]]

    def append(self, results: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Keeps entries; a later entry of a key replaces an earlier one."""


class Answers:
    """The pairs of a person, and the answers so far.

    Args:
        keeper: Keeps digests and answers.
        pairs: The pairs; equal ones count once.
    """

    def __init__(self, keeper: Keeper, pairs: Iterable[BlindPair]) -> None:
        self._keeper = keeper
        self._pairs = {pair.key: pair for pair in pairs}

    @property
    def pairs(self) -> Sequence[BlindPair]:
        """All pairs, in their order."""
        return list(self._pairs.values())

    @property
    def pooled(self) -> Mapping[str, BlindPair]:
        """The pairs that are in the pool of the service, by key."""
        return {key: pair for key, pair in self._pairs.items() if "digest" in self._entry(key)}

    @property
    def by_digest(self) -> Mapping[str, BlindPair]:
        """The pairs of the pool by the digest that the service gave them."""
        return {self._entry(key)["digest"]: pair for key, pair in self.pooled.items()}

    @property
    def given(self) -> int:
        """Number of labels so far."""
        return sum(self.label(pair) is not None for pair in self._pairs.values())

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why pairs cannot be labelled, by key, of those that the service does not know yet."""
        return {
            key: self._entry(key)["reason"]
            for key, pair in self._pairs.items()
            if self._entry(key).get("answer") == NONE and not self.is_posted(pair)
        }

    @property
    def unposted(self) -> Mapping[str, Label]:
        """The labels that the service does not have yet, by the key of their pair."""
        return {
            key: label
            for key, pair in self._pairs.items()
            if (label := self.label(pair)) is not None and not self.is_posted(pair)
        }

    def pair(self, key: str) -> BlindPair:
        """The pair of a key."""
        return self._pairs[key]

    def label(self, pair: BlindPair) -> Label | None:
        """The label of a pair; None without one, also if the pair was skipped."""
        answer = self._entry(pair.key).get("answer")
        return answer if answer in ("A", "B", "tie") else None

    def add_digests(self, digests: Mapping[str, str]) -> None:
        """Keeps the digests, by key, of pairs that the service has taken into its pool."""
        self._keeper.append((key, {"digest": digest}) for key, digest in digests.items())

    def is_answered(self, pair: BlindPair) -> bool:
        """Whether a pair has a label, or cannot have one."""
        return self.label(pair) is not None or self._entry(pair.key).get("answer") == NONE

    def is_posted(self, pair: BlindPair) -> bool:
        """Whether the service has the answer of a pair."""
        return bool(self._entry(pair.key).get("posted"))

    def record(self, pair: BlindPair, answer: Label | str, **more: str) -> None:
        """Keeps an answer; a later answer replaces an earlier one.

        Args:
            pair: The pair.
            answer: A label, `SKIP` or `NONE`.
            **more: Further fields of the entry: the `reason` of `NONE`.
        """
        entry = {"digest": self._entry(pair.key)["digest"]}
        self._keeper.append([(pair.key, {**entry, "left": pair.left, "answer": answer, **more})])

    def note_posted(self, keys: Iterable[str], *, posted: bool = True) -> None:
        """Notes whether the service has the labels of pairs."""
        self._keeper.append((key, {**self._entry(key), "posted": posted}) for key in keys)

    def _entry(self, key: str) -> Mapping[str, Any]:
        return self._keeper.results.get(key, {})
