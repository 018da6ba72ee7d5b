"""A judged labeled batch, ready to be applied to a calibration set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Comparison, Label, LabeledComparison
from app.core.errors import ScopeJudgeError
from app.core.examples import EMPTY, Examples
from app.core.fingerprint import batch_digest, example_digest, question_digest
from app.core.score import NoScore, Score
from app.judges.scorer import ScoreOutcome
from app.sets.trail import Action, Edit


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedExample:
    """One example after judging.

    Args:
        digest: Digest of the comparison.
        example: The example, without a label for a pair of a pool.
    """

    digest: str
    example: LabeledExample

    @property
    def is_tie(self) -> bool:
        """Whether people found the two responses equal."""
        return self.example.label == "tie"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredExample:
    """A labeled comparison with what the judge made of it."""

    labelled: LabeledComparison
    score: ScoreOutcome


@dataclass(frozen=True, kw_only=True)
class JudgedBatch:
    """A judged batch, which can be applied to any version of a set.

    Args:
        examples: The examples in order; an example that could not be judged has its error.
        fingerprint: Fingerprint of the judge that scored them.
        action: The action that the trail records.
        unread: Number of posted examples that could not be parsed; they are not in the batch.
        digest: Digest from `core.fingerprint.batch_digest`; None if the texts are unknown.
        replaces: Whether all other examples of the set are removed.
        runtimes: The runtimes that computed the scores, as far as they are known.
    """

    examples: Sequence[JudgedExample | ScopeJudgeError]
    fingerprint: str
    action: Action = "calibrate"
    unread: int = 0
    digest: str | None = None
    replaces: bool = False
    runtimes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        scored: Sequence["ScoredExample"],
        *,
        fingerprint: str,
        unread: int,
        replaces: bool = False,
        runtimes: tuple[str, ...] = (),
    ) -> "JudgedBatch":
        """Joins labels and scores; long work for large texts, because each text is hashed.

        Args:
            scored: The scored batch.
            fingerprint: Fingerprint of the judge.
            unread: Number of posted examples that could not be parsed.
            replaces: Whether all other examples of the set are removed.
            runtimes: The runtime that computed the scores, if it is known.
        """
        judged: list[JudgedExample | ScopeJudgeError] = []
        for example in scored:
            if isinstance(example.score, ScopeJudgeError):
                judged.append(example.score)
            else:
                comparison, label = example.labelled.comparison, example.labelled.label
                judged.append(
                    JudgedExample(
                        digest=example_digest(fingerprint, comparison),
                        example=labeled_example(example.score, comparison, label),
                    )
                )
        return cls(
            examples=judged,
            fingerprint=fingerprint,
            unread=unread,
            digest=batch_digest([example.labelled for example in scored]),
            replaces=replaces,
            runtimes=runtimes,
        )

    @classmethod
    def of_pool(
        cls,
        pairs: Sequence[tuple[str, Comparison]],
        scores: Mapping[str, ScoreOutcome],
        known: Mapping[str, LabeledExample],
        *,
        fingerprint: str,
        unread: int,
        runtimes: tuple[str, ...] = (),
    ) -> "JudgedBatch":
        """Makes examples without labels; long work for large texts.

        Args:
            pairs: Digest and comparison of each pair.
            scores: Digest -> score or error of each new pair.
            known: The examples of the set, which has the other pairs.
            fingerprint: Fingerprint of the judge.
            unread: Number of posted pairs that could not be parsed.
            runtimes: The runtime that computed the scores, if it is known.
        """
        judged: list[JudgedExample | ScopeJudgeError] = []
        for digest, comparison in pairs:
            score = scores.get(digest)
            if isinstance(score, ScopeJudgeError):
                judged.append(score)
                continue
            stored = known[digest].score if score is None else score
            example = labeled_example(stored, comparison, None)
            judged.append(JudgedExample(digest=digest, example=example))
        return cls(
            examples=judged,
            fingerprint=fingerprint,
            action="pool",
            unread=unread,
            runtimes=runtimes,
        )

    @cached_property
    def by_digest(self) -> Mapping[str, LabeledExample]:
        """Digest -> example; the last label of a digest counts."""
        return {
            example.digest: example.example
            for example in self.examples
            if isinstance(example, JudgedExample)
        }

    @cached_property
    def errors(self) -> tuple[tuple[int, ScopeJudgeError], ...]:
        """(index in the batch, error) of each example that could not be judged."""
        return tuple(
            (i, error)
            for i, error in enumerate(self.examples)
            if isinstance(error, ScopeJudgeError)
        )

    @cached_property
    def ties(self) -> int:
        """Number of examples without a preferred side."""
        judged = (example for example in self.examples if isinstance(example, JudgedExample))
        return sum(example.is_tie for example in judged)

    def applied_to(self, before: Calibration) -> tuple[Calibration, int, int]:
        """Returns the set with the batch, and the numbers of added and of removed examples.

        The set is `before` itself if the batch changes nothing. Ties do not count as added.
        """
        put, take = self._difference(before)
        if not put and not take:
            return before, 0, 0
        added = sum(
            example.label != "tie" and digest not in before.table for digest, example in put.items()
        )
        after = replace(
            before,
            examples=before.table.changed(put, take),
            runtimes=tuple(sorted({*before.runtimes, *self.runtimes})),
        )
        return after, added, len(take)

    def _difference(self, before: Calibration) -> tuple[dict[str, LabeledExample], list[str]]:
        """The examples to add to a set, and the digests to remove."""
        known = before.table
        put: dict[str, LabeledExample] = {}
        for digest, example in self.by_digest.items():
            present = known.get(digest)
            merged = example if present is None else _merged(present, example)
            if merged != present:
                put[digest] = merged
        take = [digest for digest in known if digest not in self.by_digest] if self.replaces else []
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
            action=self.action,
            by=by,
            at=at,
            added=added,
            updated=judged - added,
            ties=self.ties,
            removed=removed,
            failed=len(self.errors) + self.unread,
            batch_digest=self.digest,
        )


def examples_of(calibration: Calibration | None) -> Examples:
    """Returns the examples of a calibration; no examples without a calibration."""
    return calibration.table if calibration else EMPTY


def digested(
    comparisons: Sequence[Comparison], *, fingerprint: str
) -> list[tuple[str, Comparison]]:
    """Returns the digest of each comparison, with the comparison; long work for large texts."""
    return [(example_digest(fingerprint, comparison), comparison) for comparison in comparisons]


def labeled_example(
    score: Score | NoScore, comparison: Comparison, label: Label | None
) -> LabeledExample:
    """Returns the calibration point of a judged comparison; long work for a large text."""
    question = question_digest(comparison)
    return LabeledExample(score=score, label=label, question=question)


def _merged(present: LabeledExample, new: LabeledExample) -> LabeledExample:
    """A known example after it was posted again.

    A pair without a label changes no label, so that a pool never takes one away. A question
    that only one of the two has is kept.
    """
    return replace(present if new.label is None else new, question=new.question or present.question)
