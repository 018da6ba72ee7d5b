"""The order in which one person is asked about pairs, with skip and undo."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from app.service.labelling.answers import NONE, SKIP, Answers
from app.service.labelling.pairs import BlindPair, Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """The part of a test's pairs that this person can label.

    Args:
        asked: Pairs to ask about now, in order.
        skipped: Number of pairs that were skipped in this session.
        absent: Number of pairs that this person does not have.
        dropped: Keys of pairs whose labels the service had, and does not have any more.
    """

    asked: Sequence[BlindPair]
    skipped: int
    absent: int
    dropped: Sequence[str]


class LabelSession:
    """One person, from the first pair to the last; every answer is durable at once."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._waiting: deque[BlindPair] = deque()
        # The pairs that were answered or skipped in this session, for undo.
        self._done: list[BlindPair] = []

    def needed(self, digests: Sequence[str]) -> Needed:
        """Looks at the pairs that the next test needs.

        Args:
            digests: Digests of the pairs, in the order in which they are to be labelled.
        """
        known = self._answers.by_digest
        pairs = [known[digest] for digest in digests if digest in known]
        done = {pair.key for pair in self._done}
        skipped = [pair for pair in pairs if pair.key in done]
        return Needed(
            asked=[pair for pair in pairs if pair.key not in done],
            skipped=len(skipped),
            absent=len(digests) - len(pairs),
            dropped=[pair.key for pair in pairs if self._answers.is_answered(pair)],
        )

    def ask(self, pairs: Sequence[BlindPair]) -> None:
        """Puts pairs into the queue instead of those that wait there."""
        self._waiting = deque(pairs)

    @property
    def current(self) -> BlindPair | None:
        """The pair that is asked about; None if no pair waits."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting(self) -> int:
        """Number of pairs that wait."""
        return len(self._waiting)

    @property
    def head(self) -> str:
        """How far the person is, in a line."""
        number, most = self._answers.given + 1, len(self._answers.pairs)
        return f"label {number} of at most {most}: {len(self._waiting)} until the next test"

    def choose(self, choice: Choice) -> None:
        """Records the label of the current pair, and moves to the next one."""
        self._answer(self._waiting[0].label_of(choice))

    def skip(self) -> None:
        """Moves to the next pair; a skip is not a label."""
        self._answer(SKIP)

    def undo(self) -> None:
        """Takes the last answer of this session back, and asks about its pair again.

        A label that the service has stays there until the pair has another answer.
        """
        if not self._done:
            return
        pair = self._done.pop()
        if not self._answers.is_posted(pair):
            self._answers.record(pair, SKIP)
        self._waiting.appendleft(pair)

    def _answer(self, answer: str, **more: str) -> None:
        pair = self._waiting.popleft()
        self._answers.record(pair, answer, **more)
        self._done.append(pair)


class AuditSession(LabelSession):
    """One person who labels audits, of which some cannot be labelled."""

    @property
    def head(self) -> str:
        """How far the person is, in a line."""
        done = len(self._done)
        return f"audit {done + 1} of {done + len(self._waiting)}"

    def close(self, reason: str) -> None:
        """Records that the current pair cannot be labelled, and moves on to the next one."""
        self._answer(NONE, reason=reason)
