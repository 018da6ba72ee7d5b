"""A judged labeled batch, ready to be applied to a calibration set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Comparison, Label, LabeledComparison
from app.core.errors import ScopeJudgeError
from app.core.fingerprint import example_digest, question_digest
from app.core.score import NoScore, Score
from app.judges.scorer import ScoreOutcome
from app.sets.trail import Action, SetChange

# Digest of a comparison, and its example.
Judged = tuple[str, LabeledExample]


@dataclass(frozen=True, kw_only=True)
class JudgedBatch:
    """A judged batch, which can be applied to any version of a set.

    Args:
        examples: The examples in order, those of a pool without labels; an example that could not
            be judged has its error.
        unread: Number of posted examples that could not be parsed; they are not in the batch.
        replaces: Whether all other examples of the set are removed.
        change_labels: Whether its label counts for a pair that has another one.
        runtimes: The runtimes that computed the scores, as far as they are known.
    """

    examples: Sequence[Judged | ScopeJudgeError]
    fingerprint: str
    action: Action = "calibrate"
    unread: int = 0
    replaces: bool = False
    change_labels: bool = True
    runtimes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        labelled: Sequence[LabeledComparison],
        scores: Sequence[ScoreOutcome],
        *,
        fingerprint: str,
        unread: int,
        replaces: bool,
        change_labels: bool,
        runtimes: tuple[str, ...],
    ) -> "JudgedBatch":
        """Joins labels and scores; long work for large texts, because each text is hashed."""
        return cls(
            examples=[
                score
                if isinstance(score, ScopeJudgeError)
                else (
                    example_digest(fingerprint, example.comparison),
                    labeled_example(score, example.comparison, example.label),
                )
                for example, score in zip(labelled, scores, strict=True)
            ],
            fingerprint=fingerprint,
            unread=unread,
            replaces=replaces,
            change_labels=change_labels,
            runtimes=runtimes,
        )

    @cached_property
    def by_digest(self) -> Mapping[str, LabeledExample]:
        """Digest -> example; the last label of a digest counts."""
        return dict(judged for judged in self.examples if isinstance(judged, tuple))

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
        return sum(
            judged[1].label == "tie" for judged in self.examples if isinstance(judged, tuple)
        )

    def applied_to(self, before: Calibration, *, by: str, at: datetime) -> SetChange:
        """Returns the change of a set by this batch; ties do not count as added."""
        known, merged, changed = before.table, dict[str, LabeledExample](), dict[str, None]()
        for digest, example in (judged for judged in self.examples if isinstance(judged, tuple)):
            present, new = merged.get(digest) or known.get(digest), example.in_set_order
            merged[digest] = new if present is None else _merged(present, new)
            if present is not None and present.label not in (None, merged[digest].label):
                changed[digest] = None
        put = {
            digest: example for digest, example in merged.items() if example != known.get(digest)
        }
        take = [digest for digest in known if digest not in self.by_digest] if self.replaces else []
        added = sum(
            example.label != "tie" and digest not in known for digest, example in put.items()
        )
        after = before
        if put or take:
            after = replace(
                before,
                examples=known.changed(put, take),
                runtimes=tuple(sorted({*before.runtimes, *self.runtimes})),
            )
        return SetChange(
            action=self.action,
            by=by,
            at=at,
            before=before,
            after=after,
            added=added,
            updated=len(self.examples) - len(self.errors) - self.ties - added,
            ties=self.ties,
            removed=len(take),
            changed_labels=tuple(changed),
            unread=self.unread,
            failed=self.errors,
        )


def labeled_example(
    score: Score | NoScore, comparison: Comparison, label: Label | None
) -> LabeledExample:
    """Returns the calibration point of a judged comparison; long work for a large text."""
    return LabeledExample(
        score=score,
        label=label,
        question=question_digest(comparison),
        is_reversed=comparison.is_reversed,
    )


def _merged(present: LabeledExample, new: LabeledExample) -> LabeledExample:
    """A known example after it was posted again.

    A pair without a label changes no label, so that a pool never takes one away. A question
    that only one of the two has is kept.
    """
    return replace(present if new.label is None else new, question=new.question or present.question)
