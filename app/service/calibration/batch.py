"""A judged labelled batch, ready to be applied to a calibration set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import LabelledComparison
from app.core.errors import ScopeJudgeError
from app.core.fingerprint import batch_digest, example_digest
from app.service.calibration.trail import Edit
from app.service.judging.judge import Score


class JudgedBatch(NamedTuple):
    """A judged batch, which can be applied to any version of a set.

    Args:
        scores: Digest of the comparison -> labelled score; None for a tie.
        label_noise: New label noise of the set; None keeps the current one.
        judged: Number of judged examples, including repetitions.
        ties: Number of examples without a preferred side.
        errors: (index in the batch, error) of each example that could not be judged.
        unread: Number of posted examples that could not be parsed; they are not in the batch.
        digest: Digest from `core.fingerprint.batch_digest`.
    """

    scores: Mapping[str, LabelledScore | None]
    label_noise: float | None
    judged: int
    ties: int
    errors: tuple[tuple[int, ScopeJudgeError], ...]
    unread: int
    digest: str

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
        labelled: dict[str, LabelledScore | None] = {}
        errors: list[tuple[int, ScopeJudgeError]] = []
        for i, example in enumerate(examples):
            score = scores.get(i)
            if isinstance(score, ScopeJudgeError):
                errors.append((i, score))
            else:
                digest = example_digest(fingerprint, example.comparison)
                labelled[digest] = _labelled(score, example)
        return cls(
            labelled,
            label_noise,
            judged=len(scores) - len(errors),
            ties=len(examples) - len(scores),
            errors=tuple(errors),
            unread=unread,
            digest=batch_digest(examples),
        )

    def applied_to(self, before: Calibration) -> tuple[Calibration, int, int]:
        """Returns the set with the batch, and the numbers of added and of removed examples.

        The set is `before` itself if the batch changes nothing.
        """
        put = {digest: score for digest, score in self.scores.items() if score is not None}
        known = before.table
        take = [digest for digest, s in self.scores.items() if s is None and digest in known]
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
        return Edit(
            "calibrate",
            by,
            at,
            added=added,
            updated=self.judged - added,
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
