"""A judged labelled batch, ready to be applied to a calibration set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import LabelledComparison
from app.core.errors import ScopeJudgeError
from app.core.fingerprint import batch_digest, example_digest
from app.service.calibration.trail import Action, Edit
from app.service.judging.judge import Score


class JudgedExample(NamedTuple):
    """One labelled example after judging.

    Args:
        digest: Digest of the comparison.
        score: The labelled score; None for a tie.
    """

    digest: str
    score: LabelledScore | None


@dataclass(frozen=True)
class JudgedBatch:
    """A judged batch, which can be applied to any version of a set.

    Args:
        examples: The examples in order; an example that could not be judged has its error.
        fingerprint: Fingerprint of the judge that scored them.
        label_noise: New label noise of the set; None keeps the current one.
        action: The action that the trail records.
        unread: Number of posted examples that could not be parsed; they are not in the batch.
        digest: Digest from `core.fingerprint.batch_digest`; None if the texts are unknown.
        replaces: Whether all other examples of the set are removed.
    """

    examples: Sequence[JudgedExample | ScopeJudgeError]
    fingerprint: str
    label_noise: float | None
    action: Action = "calibrate"
    unread: int = 0
    digest: str | None = None
    replaces: bool = False

    @classmethod
    def of(
        cls,
        examples: Sequence[LabelledComparison],
        scores: Mapping[int, Score | ScopeJudgeError],
        *,
        fingerprint: str,
        label_noise: float | None,
        unread: int,
    ) -> "JudgedBatch":
        """Joins labels and scores; long work for large texts, because each text is hashed.

        Args:
            examples: The labelled batch.
            scores: Index in the batch -> score or error; ties have none.
            fingerprint: Fingerprint of the judge.
            label_noise: New label noise of the set; None keeps the current one.
            unread: Number of posted examples that could not be parsed.
        """
        judged: list[JudgedExample | ScopeJudgeError] = []
        for i, example in enumerate(examples):
            score = scores.get(i)
            if isinstance(score, ScopeJudgeError):
                judged.append(score)
            else:
                known_as = example_digest(fingerprint, example.comparison)
                judged.append(JudgedExample(known_as, _labelled(score, example)))
        digest = batch_digest(examples)
        return cls(judged, fingerprint, label_noise, unread=unread, digest=digest)

    @cached_property
    def scores(self) -> Mapping[str, LabelledScore | None]:
        """Digest -> labelled score, None for a tie; the last label of a digest counts."""
        return dict(each for each in self.examples if isinstance(each, JudgedExample))

    @cached_property
    def errors(self) -> tuple[tuple[int, ScopeJudgeError], ...]:
        """(index in the batch, error) of each example that could not be judged."""
        return tuple(
            (i, each) for i, each in enumerate(self.examples) if isinstance(each, ScopeJudgeError)
        )

    @cached_property
    def ties(self) -> int:
        """Number of examples without a preferred side."""
        return sum(isinstance(e, JudgedExample) and e.score is None for e in self.examples)

    def applied_to(self, before: Calibration) -> tuple[Calibration, int, int]:
        """Returns the set with the batch, and the numbers of added and of removed examples.

        The set is `before` itself if the batch changes nothing.
        """
        put = {digest: score for digest, score in self.scores.items() if score is not None}
        known = before.table
        take = [digest for digest, s in self.scores.items() if s is None and digest in known]
        if self.replaces:
            take = [digest for digest in known if digest not in put]
        noise = before.label_noise if self.label_noise is None else self.label_noise
        differs = any(known.get(digest) != score for digest, score in put.items())
        if not differs and not take and noise == before.label_noise:
            return before, 0, 0
        examples = known.changed(put, take)
        added = len(examples) - before.n + len(take)
        return replace(before, label_noise=noise, examples=examples), added, len(take)

    def edit(self, *, by: str, at: datetime, added: int, removed: int) -> Edit:
        """Returns the edit that this batch makes.

        Args:
            by: Name of the key that posted the batch.
            at: Time of the change, in UTC.
            added: Number of new examples.
            removed: Number of removed examples.
        """
        judged = len(self.examples) - len(self.errors) - self.ties
        return Edit(
            self.action,
            by,
            at,
            added=added,
            updated=judged - added,
            ties=self.ties,
            removed=removed,
            failed=len(self.errors) + self.unread,
            batch_digest=self.digest,
        )


def _labelled(score: Score | None, example: LabelledComparison) -> LabelledScore | None:
    """Returns the calibration point of an example; None for a tie."""
    if example.label == "tie":
        return None
    assert score is not None, "every example except ties is judged"
    return LabelledScore(score.gap_fwd, score.gap_rev, score.label_mass, example.label)
