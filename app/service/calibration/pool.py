"""Adds pairs without labels to a calibration set; /calibrate labels them later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError, ScopeJudgeError
from app.core.fingerprint import example_digest, question_digest
from app.service.calibration.batch import JudgedBatch, JudgedExample, scored
from app.service.calibration.cache import Calibrations, refuse_other_judge
from app.service.calibration.calibrator import Calibrator
from app.service.judging.judge import Judge, Score
from app.service.off_loop import off_loop


@dataclass(frozen=True, slots=True)
class PoolReport:
    """The outcome of adding pairs without labels.

    Args:
        calibration: The set afterwards.
        digests: Digest of each pair, in order; the set has the pairs that are not in `failed`.
        added: Number of new pairs.
        known: Number of pairs that the set already had or that the request repeats.
        failed: (index, error) of each pair that could not be judged.
    """

    calibration: Calibration
    digests: tuple[str, ...]
    added: int
    known: int
    failed: tuple[tuple[int, ScopeJudgeError], ...]


async def add_to_pool(
    name: str,
    comparisons: Sequence[Comparison],
    *,
    judge: Judge,
    calibrations: Calibrations,
    calibrator: Calibrator,
    by: str = "service",
    unread: int = 0,
) -> PoolReport:
    """Judges pairs and adds them to a set without labels, all in one version or not at all.

    Adding is idempotent: a pair that the set has keeps its label and its scores, and is not judged
    again.

    Args:
        name: Name of the calibration set; a missing set is made.
        comparisons: The pairs.
        judge: The judge that scores them.
        calibrations: The cache of the sets.
        calibrator: Writes the set.
        by: Name of the key that posted the pairs, for the trail.
        unread: Number of posted pairs that could not be parsed, for the trail.

    Raises:
        JudgeMismatchError: The set belongs to another judge; nothing was judged.
        JudgmentFailedError: Every pair failed; nothing was added.
        UnavailableError: Nothing was added; or everything was, if the connection to the store
            broke. Posting the pairs again is safe.
    """
    present = await calibrations.current(name)
    if present is not None:
        refuse_other_judge(present, judge.fingerprint)
    digests = await off_loop(_digests, judge.fingerprint, comparisons)
    known = present.table if present is not None else {}
    # Digest -> index of its first pair, without the pairs that the set has.
    new = {each: i for i, each in reversed(list(enumerate(digests))) if each not in known}
    scores = await _scores(judge, comparisons, sorted(new.values()))
    batch = await off_loop(_batch, comparisons, digests, scores, known, judge.fingerprint, unread)
    report = await calibrator.put(name, batch, by=by)
    return PoolReport(report.calibration, digests, report.added, report.updated, report.failed)


def _digests(fingerprint: str, comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    return tuple(example_digest(fingerprint, comparison) for comparison in comparisons)


async def _scores(
    judge: Judge, comparisons: Sequence[Comparison], indices: Sequence[int]
) -> dict[int, Score | ScopeJudgeError]:
    """Judges some of the pairs in one engine call; returns index -> score or error."""
    found = await judge.score([comparisons[i] for i in indices])
    # A client that reads only the HTTP status must not take this for a success.
    if found and all(isinstance(score, JudgmentFailedError) for score in found):
        raise JudgmentFailedError(f"the judge failed on all {len(found)} pairs")
    return dict(zip(indices, found, strict=True))


def _batch(
    comparisons: Sequence[Comparison],
    digests: Sequence[str],
    scores: Mapping[int, Score | ScopeJudgeError],
    known: Mapping[str, LabelledScore],
    fingerprint: str,
    unread: int,
) -> JudgedBatch:
    """The batch, with the stored scores of the pairs that the set has."""
    found: dict[str, LabelledScore | ScopeJudgeError] = {}
    for i, (digest, comparison) in enumerate(zip(digests, comparisons, strict=True)):
        score = scores.get(i)
        if isinstance(score, Score):
            found[digest] = scored(score, comparison, None)
        elif score is not None:
            found[digest] = score
        elif digest not in found:
            question = question_digest(comparison)
            found[digest] = known[digest]._replace(label=None, question=question)
    examples: list[JudgedExample | ScopeJudgeError] = []
    for digest in digests:
        outcome = found[digest]
        if isinstance(outcome, ScopeJudgeError):
            examples.append(outcome)
        else:
            examples.append(JudgedExample(digest, outcome))
    return JudgedBatch(examples, fingerprint, None, action="pool", unread=unread)
