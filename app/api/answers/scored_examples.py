"""Builds the records of judged examples: scores and labels, without texts."""

from collections.abc import Sequence
from heapq import nsmallest

from app.core.calibration import Calibration, LabeledExample
from app.core.score import NoScore, Score
from app.sets.batch import JudgedBatch
from scope_judge import records


def _scored(digest: str, example: LabeledExample) -> records.ScoredExample:
    return records.ScoredExample(
        digest=digest,
        **example.score.fields,
        label=example.label,
        question=example.question,
        small=small_score(example.score.small),
    )


def small_score(score: Score | NoScore | None) -> records.SmallScore | None:
    """Converts the score of a cascade's small judge."""
    return None if score is None else records.SmallScore(**score.fields)


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
        scores=tuple(_scored(*judged) for judged in batch.examples if isinstance(judged, tuple)),
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
        examples=tuple(_scored(digest, table[digest]) for digest in page),
    )
