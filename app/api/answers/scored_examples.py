"""Builds the records of judged examples: scores and labels, without texts."""

from collections.abc import Sequence
from heapq import nsmallest

from app.core.calibration import Calibration
from app.core.score import NoScore, Score
from app.sets.batch import JudgedBatch, JudgedExample
from scope_judge import records


def _scored(example: JudgedExample) -> records.ScoredExample:
    judged, score = example.example, example.example.score
    return records.ScoredExample(
        digest=example.digest,
        gap_fwd=None if isinstance(score, NoScore) else score.gap_fwd,
        gap_rev=None if isinstance(score, NoScore) else score.gap_rev,
        label_mass=None if isinstance(score, NoScore) else score.label_mass,
        label=judged.label,
        question=judged.question,
        small=small_score(score.small),
    )


def small_score(score: Score | NoScore | None) -> records.SmallScore | None:
    """Converts the score of a cascade's small judge."""
    if score is None:
        return None
    if isinstance(score, NoScore):
        return records.SmallScore(gap_fwd=None, gap_rev=None, label_mass=None)
    return records.SmallScore(
        gap_fwd=score.gap_fwd, gap_rev=score.gap_rev, label_mass=score.label_mass
    )


def scores(
    judge: str, batch: JudgedBatch, errors: Sequence[records.ExampleError]
) -> records.Scores:
    """Converts a judged batch.

    Args:
        judge: Name of the judge.
        batch: The batch.
        errors: All failed examples: those of the batch, and those that could not be parsed.
    """
    return records.Scores(
        judge=judge,
        fingerprint=batch.fingerprint,
        scores=tuple(
            _scored(example) for example in batch.examples if isinstance(example, JudgedExample)
        ),
        ties=batch.ties,
        failed=len(errors),
        errors=tuple(errors),
    )


def example_page(calibration: Calibration, *, after: str, limit: int) -> records.ExamplePage:
    """Makes a page.

    Args:
        calibration: The set.
        after: Only examples with a larger digest.
        limit: Most examples.
    """
    table = calibration.table
    # `nsmallest` lets other threads run in between, and one call of `sorted` does not.
    page = nsmallest(limit, (digest for digest in table if digest > after))
    return records.ExamplePage(
        name=calibration.name,
        version=calibration.version,
        judge=calibration.judge,
        fingerprint=calibration.fingerprint,
        runtimes=calibration.runtimes,
        min_label_mass=calibration.min_label_mass,
        n=calibration.n,
        release=calibration.release,
        examples=tuple(
            _scored(JudgedExample(digest=digest, example=table[digest])) for digest in page
        ),
    )
