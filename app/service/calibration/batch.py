"""A judged labelled batch, ready to be applied to a calibration set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from app.core.calibration import Calibration, LabelledScore
from app.core.clusters import ClusterRule
from app.core.comparison import Comparison, Label, LabelledComparison
from app.core.errors import ScopeJudgeError
from app.core.fingerprint import batch_digest, example_digest, question_digest
from app.service.calibration.trail import Action, Edit
from app.service.judging.judge import Score


class JudgedExample(NamedTuple):
    """One example after judging.

    Args:
        digest: Digest of the comparison.
        score: The labelled score, without a label for a pair of a pool; None for a tie that was not
            judged.
    """

    digest: str
    score: LabelledScore | None

    @property
    def is_tie(self) -> bool:
        """Whether people found the two responses equal."""
        return self.score is None or self.score.label == "tie"


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
        clusters: New rule of the set for pairs of one question; None keeps the current one.
        replaces: Whether all other examples of the set are removed.
    """

    examples: Sequence[JudgedExample | ScopeJudgeError]
    fingerprint: str
    label_noise: float | None
    action: Action = "calibrate"
    unread: int = 0
    digest: str | None = None
    clusters: ClusterRule | None = None
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
        clusters: ClusterRule | None = None,
    ) -> "JudgedBatch":
        """Joins labels and scores; long work for large texts, because each text is hashed.

        Args:
            examples: The labelled batch.
            scores: Index in the batch -> score or error; ties have none.
            fingerprint: Fingerprint of the judge.
            label_noise: New label noise of the set; None keeps the current one.
            unread: Number of posted examples that could not be parsed.
            clusters: New rule of the set for pairs of one question; None keeps the current one.
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
        return cls(
            judged, fingerprint, label_noise, unread=unread, digest=digest, clusters=clusters
        )

    @cached_property
    def scores(self) -> Mapping[str, LabelledScore | None]:
        """Digest -> labelled score, None for an unjudged tie; the last label of a digest counts."""
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
        return sum(isinstance(each, JudgedExample) and each.is_tie for each in self.examples)

    def applied_to(self, before: Calibration) -> tuple[Calibration, int, int]:
        """Returns the set with the batch, and the numbers of added and of removed examples.

        The set is `before` itself if the batch changes nothing. Ties do not count as added.
        """
        put, take = self._difference(before)
        noise = before.label_noise if self.label_noise is None else self.label_noise
        clusters = self.clusters or before.clusters
        if not put and not take and (noise, clusters) == (before.label_noise, before.clusters):
            return before, 0, 0
        examples = before.table.changed(put, take)
        added = sum(
            score.label != "tie" and digest not in before.table for digest, score in put.items()
        )
        after = replace(before, label_noise=noise, clusters=clusters, examples=examples)
        return after, added, len(take)

    def _difference(self, before: Calibration) -> tuple[dict[str, LabelledScore], list[str]]:
        """The examples to put into a set, and the digests to take out of it."""
        known = before.table
        # A pool keeps its ties: the number of its pairs was fixed before people saw them.
        keeps_ties = before.unlabelled + before.ties > 0
        put: dict[str, LabelledScore] = {}
        take: list[str] = []
        for digest, score in self.scores.items():
            present = known.get(digest)
            if score is not None:
                merged = score if present is None else _merged(present, score)
                if merged != present:
                    put[digest] = merged
            elif present is not None and not keeps_ties:
                take.append(digest)
            elif present is not None and present.label != "tie":
                put[digest] = present._replace(label="tie")
        if self.replaces:
            take = [digest for digest in known if self.scores.get(digest) is None]
        return put, take

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
    return scored(score, example.comparison, example.label)


def scored(score: Score, comparison: Comparison, label: Label | None) -> LabelledScore:
    """Returns the calibration point of a judged comparison; long work for a large text."""
    question = question_digest(comparison)
    return LabelledScore(score.gap_fwd, score.gap_rev, score.label_mass, label, question)


def _merged(present: LabelledScore, new: LabelledScore) -> LabelledScore:
    """A known example after it was posted again.

    A pair without a label changes nothing, so that a pool never takes a label away. A question that
    only one of the two knows is kept.
    """
    question = new.question or present.question
    return (present if new.label is None else new)._replace(question=question)
