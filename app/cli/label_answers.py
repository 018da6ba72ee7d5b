"""The answers of a person who labels, kept durably beside the file of pairs.

No text is kept: an answer has the key of its pair, and the response that was shown on the left.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from app.cli.comparisons import Item
from app.core.comparison import Label, Side
from app.core.errors import ScopeJudgeError
from app.files.journal import Journal

SKIP = "skip"


class Pooled(NamedTuple):
    """A pair that can be labelled.

    Args:
        item: The row.
        left: The response that is shown on the left.
    """

    item: Item
    left: Side

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the comparison."""
        assert not isinstance(self.item.fields, ScopeJudgeError), "only comparisons are pooled"
        return {name: self.item.fields[name] for name in ("question", "response_a", "response_b")}


class Answers:
    """The pairs of a file, and what a person has answered so far.

    Args:
        journal: Keeps digests and answers; each answer is durable when `record` returns.
        items: Rows of the file; those without a comparison are left out, and equal ones count once.
        seed: Decides for each pair which response is on the left.
    """

    def __init__(self, journal: Journal, items: Sequence[Item], seed: int) -> None:
        self._journal = journal
        self._pairs = {
            item.key: Pooled(item, left_side(seed, item.key))
            for item in items
            if not isinstance(item.fields, ScopeJudgeError)
        }

    @property
    def pairs(self) -> Sequence[Pooled]:
        """All pairs, in the order of the file."""
        return list(self._pairs.values())

    @property
    def unknown(self) -> Sequence[Pooled]:
        """The pairs that are not in the pool of the service yet."""
        return [each for key, each in self._pairs.items() if "digest" not in self._entry(key)]

    @property
    def by_digest(self) -> Mapping[str, Pooled]:
        """The pairs of the pool by the digest that the service gave them."""
        return {
            entry["digest"]: self._pairs[key]
            for key, entry in self._journal.results.items()
            if key in self._pairs and "digest" in entry
        }

    @property
    def given(self) -> int:
        """Number of labels so far."""
        return sum(self.label(each) is not None for each in self._pairs.values())

    @property
    def unposted(self) -> Sequence[tuple[Pooled, Label]]:
        """The labels that the service does not have yet."""
        found = ((each, self.label(each)) for each in self._pairs.values())
        return [
            (each, label)
            for each, label in found
            if label is not None and not self._entry(each.item.key).get("posted")
        ]

    def label(self, pair: Pooled) -> Label | None:
        """The label of a pair; None without one, also if the pair was skipped."""
        answer = self._entry(pair.item.key).get("answer")
        return answer if answer in ("A", "B", "tie") else None

    def add_digests(self, digests: Iterable[tuple[Pooled, str]]) -> None:
        """Keeps the digests of pairs that the service has taken into its pool."""
        self._journal.append((pair.item.key, {"digest": digest}) for pair, digest in digests)

    def record(self, pair: Pooled, answer: Label | str) -> None:
        """Keeps an answer, a label or `SKIP`; a later answer replaces an earlier one."""
        entry = {"digest": self._entry(pair.item.key)["digest"]}
        entry |= {"left": pair.left, "answer": answer}
        self._journal.append([(pair.item.key, entry)])

    def note_posted(self, pairs: Iterable[Pooled], *, posted: bool = True) -> None:
        """Notes whether the service has the labels of pairs."""
        self._journal.append(
            (pair.item.key, {**self._entry(pair.item.key), "posted": posted}) for pair in pairs
        )

    def _entry(self, key: str) -> Mapping[str, Any]:
        return self._journal.results.get(key, {})


def left_side(seed: int, key: str) -> Side:
    """The response that is shown on the left: a coin for each pair, the same in every run."""
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return "A" if digest[0] % 2 else "B"
