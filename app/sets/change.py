"""Changes of a calibration set: judged batches, what a change does, and its entry in the trail.

Each change makes a version. The trail is the list of all changes; the store keeps the last versions
themselves.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Comparison, Label
from app.core.errors import ScopeJudgeError
from app.core.fingerprint import question_digest
from app.judges.scorer import ScoreOutcome
from app.ports import Entry
from app.sets.codec import thresholds_of
from scope_judge import records

logger = logging.getLogger("app.calibrations")

Action = Literal["absorb", "calibrate", "delete", "import", "plan", "pool", "rollback"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SetChange:
    """A change of a set: made, or only looked at.

    Args:
        before: The set before it; one without examples and write id if there was none, or if it
            could not be read.
        after: The set after it, `before` itself if nothing changes; None for a deletion.
        updated: Number of examples that the set already had or that the batch repeats. The last
            label counts.
        ties: Number of examples without a preferred side; the set keeps them for their scores.
        removed: Number of examples removed from the set; None if the set could not be read.
        changed_labels: Digests of the pairs whose label is another one than before.
        failed: (index in the batch, error) of each example that could not be judged.
        effects: The effect on each criterion in use; None if nobody looked at it.
        ended: The active alarms that it ends.
    """

    action: Action
    by: str
    at: datetime
    before: Calibration
    after: Calibration | None
    added: int = 0
    updated: int = 0
    ties: int = 0
    removed: int | None = 0
    changed_labels: tuple[str, ...] = ()
    failed: tuple[tuple[int, ScopeJudgeError], ...] = ()
    rolled_back_to: int | None = None
    effects: tuple[records.Effect, ...] | None = None
    ended: tuple[records.EndedAlarm, ...] = ()

    @property
    def calibration(self) -> Calibration:
        """The set after a change that is no deletion."""
        assert self.after is not None, "a deletion leaves no set"
        return self.after

    @property
    def present(self) -> Calibration | None:
        """The set before the change; None if there was none or it could not be read."""
        return self.before if self.before.write_id else None


# Digest of a comparison, and its example.
Judged = tuple[str, LabeledExample]


@dataclass(frozen=True, kw_only=True)
class JudgedBatch:
    """A judged batch, which can be applied to any version of a set.

    Args:
        examples: The examples in order, those of a pool without labels; an example that could not
            be judged has its error.
        replaces: Whether all other examples of the set are removed.
    """

    examples: Sequence[Judged | ScopeJudgeError]
    fingerprint: str
    action: Action = "calibrate"
    replaces: bool = False
    change_labels: bool = True

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
            after = replace(before, examples=known.changed(put, take))
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
            failed=self.errors,
        )


def judged_examples(
    digests: Sequence[str],
    comparisons: Sequence[Comparison],
    labels: Iterable[Label | None],
    scores: Iterable[ScoreOutcome],
) -> list[Judged | ScopeJudgeError]:
    """Joins comparisons, labels and scores; long work for large texts, which are hashed."""
    return [
        score
        if isinstance(score, ScopeJudgeError)
        else (
            digest,
            LabeledExample(
                score=score,
                label=label,
                question=question_digest(comparison),
                is_reversed=comparison.is_reversed,
            ),
        )
        for digest, comparison, label, score in zip(
            digests, comparisons, labels, scores, strict=True
        )
    ]


def _merged(present: LabeledExample, new: LabeledExample) -> LabeledExample:
    """A known example after it was posted again.

    A pair without a label changes no label, so that a pool never takes one away. A question
    that only one of the two has is kept.
    """
    return replace(present if new.label is None else new, question=new.question or present.question)


class Change(records.Version):
    """An entry of a trail, as it is stored and shown."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    @classmethod
    def of(cls, number: int, change: SetChange) -> "Change":
        """Makes the entry of a change with this number."""
        after, present = change.after, change.present
        subject = after or present
        return cls(
            version=number,
            write_id=after.write_id if after else None,
            action=change.action,
            at=change.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            by=change.by,
            added=change.added,
            updated=change.updated,
            ties=change.ties,
            removed=change.removed,
            failed=len(change.failed),
            n=after.n if after else 0,
            min_label_mass=subject.min_label_mass if subject else None,
            judge=subject.judge if subject else None,
            fingerprint=subject.fingerprint if subject else None,
            rolled_back_to=change.rolled_back_to,
            thresholds_after=thresholds_of(after) if after else None,
            unlabelled=after.unlabelled if after else 0,
        )

    @property
    def record(self) -> str:
        """The entry as the store keeps it: JSON without spaces."""
        return json.dumps(asdict(self), separators=(",", ":"))


_CHANGE = TypeAdapter(Change)


def readable_changes(name: str, entries: Iterable[Entry]) -> list[Change]:
    """Reads entries of a trail; one that this version cannot read does not hide the others."""
    changes = list[Change]()
    for entry in entries:
        try:
            changes.append(_CHANGE.validate_json(entry.record))
        except ValueError:
            logger.warning(
                "entry %d of the trail of calibration %r is left out: this version cannot read it",
                entry.head.number,
                name,
            )
    return changes
