"""Builds the records of calibration sets: their thresholds, examples, pools and changes."""

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any, TypeVar

from app.api.answers.judgments import usage_of_request
from app.api.routing import made
from app.audits.book import Book
from app.audits.changes import Absorbed
from app.core.assessment import share_interval
from app.core.calibration import STANDARD_DELTA, Calibration, LabeledExample
from app.core.preference import NoScore, Score
from app.sets.change import JudgedBatch, SetChange
from app.sets.effects import criterion_of, missing_labels
from scope_judge import records

C = TypeVar("C", bound=records.Calibration)
S = TypeVar("S", bound=records.JudgeScore)


def calibration_of(
    calibration: Calibration,
    *sources: object,
    kind: type[C],
    **more: Any,
) -> C:
    """The record of a set, which longer records extend by fields of other sources."""
    return made(
        kind,
        calibration,
        *sources,
        pool_ties=calibration.ties,
        counted=calibration.pac_pairs.curve.n,
        thresholds=calibration.standard_rows,
        cascade_share=None if calibration.cascade is None else calibration.cascade.share,
        **more,
    )


def calibration_detail(
    calibration: Calibration,
    requested: Sequence[records.Threshold],
    *,
    votes: bool = False,
) -> records.CalibrationDetail:
    """The record of a set with its quality and its curve, and further rows of "pac".

    Args:
        votes: Whether the set is of this service's judge, and the judge votes.
    """
    accuracy = calibration.accuracy
    return calibration_of(
        calibration,
        kind=records.CalibrationDetail,
        accuracy_interval=None
        if accuracy is None
        else share_interval(accuracy, calibration.labelled),
        unanimous=calibration.unanimous if votes else None,
        temperature=calibration.temperature if calibration.orders == 1 else None,
        infeasible=tuple(
            made(records.Infeasible, row, more_examples=more)
            for row, more in calibration.infeasible
        ),
        feasible_alphas=tuple(
            records.FeasibleAlphas(
                guarantee=guarantee,
                delta=STANDARD_DELTA if guarantee == "pac" else None,
                intervals=intervals,
            )
            for guarantee, intervals in calibration.feasible_alphas.items()
        ),
        requested=tuple(requested),
        curve=calibration.risk_coverage,
    )


def change_of(change: SetChange, *sources: object, kind: type[C], dry_run: bool, **more: Any) -> C:
    """The set after a change; `effects` and what follows is None if nobody looked at the change."""
    effects = change.effects
    return calibration_of(
        change.calibration,
        *sources,
        change,
        kind=kind,
        dry_run=dry_run,
        effects=effects,
        ends_alarms=None if effects is None else change.ended,
        note=None if effects is None else f"{_examples(change)}; {effects_note(effects)}",
        **more,
    )


def absorb_report(change: SetChange, chosen: Absorbed, *, dry_run: bool) -> records.AbsorbReport:
    """The set after an absorption."""
    return change_of(
        change,
        chosen,
        kind=records.AbsorbReport,
        dry_run=dry_run,
        replaced=chosen.replaces,
        ties=change.ties,
        unlabelled_audits=chosen.unlabelled,
    )


def calibration_report(
    change: SetChange, errors: Sequence[records.ExampleError], *, dry_run: bool
) -> records.CalibrationReport:
    """The set after a batch, of which examples failed or could not be parsed."""
    return change_of(
        change,
        kind=records.CalibrationReport,
        dry_run=dry_run,
        ties=change.ties,
        changed_labels=len(change.changed_labels),
        failed=len(errors),
        errors=tuple(errors),
        usage=usage_of_request(),
    )


def deletion(
    name: str, present: Calibration | None, in_use: Sequence[records.Threshold], book: Book
) -> records.Deletion:
    """Describes what the deletion of a set ends. Its trail and its audits stay.

    Args:
        present: The set; None if it cannot be read.
        in_use: The row of each criterion in use.
    """
    lost = [criterion_of(row) for row in in_use if row.feasible]
    verdicts = (
        f"{', '.join(lost)} {'has' if len(lost) == 1 else 'have'} verdicts, and will get 404 "
        "calibration_not_found"
        if lost
        else "no alpha in use has verdicts"
    )
    back = "its trail stays, but it cannot be read, so a rollback cannot restore this version"
    if present is not None:
        back = (
            f"its trail stays, so a rollback to version {present.version} restores its {present.n} "
            "examples"
        )
    alarms = tuple(alarm.ended_alarm for alarm in book.standing().values())
    return records.Deletion(
        name=name,
        version=None if present is None else present.version,
        n=None if present is None else present.n,
        in_use=tuple(in_use),
        audits=len(book.audits),
        alarms=alarms,
        note=f"{verdicts}; {back}; audits ({len(book.audits)}), active alarms ({len(alarms)}) and "
        "keys that are limited to it stay",
    )


def _examples(change: SetChange) -> str:
    ties = f"{change.ties} ties, " if change.ties else ""
    changed = len(change.changed_labels)
    labels = f"{changed} with another label than before, " if changed else ""
    changes = (
        f"{change.added} added, {change.updated} updated, {labels}{ties}{change.removed} removed"
    )
    return f"{change.before.n} examples become {change.calibration.n} ({changes})"


def effects_note(effects: Sequence[records.Effect]) -> str:
    """Says in a sentence what a change does to the criteria in use."""
    lost = [effect for effect in effects if effect.becomes_infeasible]
    if lost:
        one = min(lost, key=lambda effect: effect.after.alpha)
        others = f", and so have {len(lost) - 1} others" if len(lost) > 1 else ""
        return f"{criterion_of(one)} gets no more verdicts{others}: {missing_labels(one)}"
    feasible = [effect for effect in effects if effect.after.feasible]
    if not feasible:
        return "no alpha in use is feasible, before or after" if effects else "no alpha is in use"
    one = min(feasible, key=lambda effect: effect.after.coverage - effect.before.coverage)
    return (
        f"no alpha in use loses its verdicts; at {criterion_of(one)} the share of accepted "
        f"examples goes from {one.before.coverage:.0%} to {one.after.coverage:.0%}"
    )


def judge_score(score: Score | NoScore, *, kind: type[S], **more: Any) -> S:
    """The score of one judge; its numbers are None if the judge gave none."""
    return made(kind, score, **score.fields, **more)


def small_score(score: Score | NoScore | None) -> records.JudgeScore | None:
    """The score of a cascade's small judge."""
    return None if score is None else judge_score(score, kind=records.JudgeScore)


def _scored(digest: str, example: LabeledExample) -> records.ScoredExample:
    small = small_score(example.score.small)
    return judge_score(
        example.score,
        kind=records.ScoredExample,
        digest=digest,
        label=example.label,
        question=example.question,
        is_reversed=example.is_reversed,
        small=small,
    )


def scores(
    judge: str, batch: JudgedBatch, errors: Sequence[records.ExampleError]
) -> records.Scores:
    """A judged batch, of which examples failed or could not be parsed."""
    return made(
        records.Scores,
        batch,
        judge=judge,
        scores=tuple(_scored(*judged) for judged in batch.examples if isinstance(judged, tuple)),
        failed=len(errors),
        errors=tuple(errors),
    )


def example_page(calibration: Calibration, *, after: str, limit: int) -> records.ExamplePage:
    """At most `limit` examples with larger digests than `after`."""
    table = calibration.table
    # `nsmallest` lets other threads run in between, and one call of `sorted` does not.
    page = nsmallest(limit, (digest for digest in table if digest > after))
    examples = tuple(_scored(digest, table[digest]) for digest in page)
    return made(records.ExamplePage, calibration, examples=examples)


def pool_report(
    change: SetChange, digests: Sequence[str | None], errors: Sequence[records.ExampleError]
) -> records.PoolReport:
    """The set after pairs were added.

    Args:
        digests: Digest of each posted pair; None for those that failed.
        errors: All failed pairs: those of the change, and those that could not be parsed.
    """
    calibration = change.calibration
    return made(
        records.PoolReport,
        calibration,
        pool_ties=calibration.ties,
        added=change.added,
        known=change.updated,
        failed=len(errors),
        digests=tuple(digests),
        errors=tuple(errors),
        usage=usage_of_request(),
    )


def next_labels(
    calibration: Calibration, *, alpha: float, delta: float, limit: int
) -> records.NextLabels:
    """Runs the tests of "pac" as far as labels reach, and lists at most `limit` digests."""
    row = calibration.row(alpha, "pac", delta)
    pairs = calibration.pac_pairs
    _, places = pairs.needed(alpha, delta)
    digests = calibration.pac_digests(places)
    needed = len(digests)
    labels = "1 more label" if needed == 1 else f"{needed} more labels"
    return records.NextLabels(
        name=calibration.name,
        version=calibration.version,
        alpha=alpha,
        delta=delta,
        n=pairs.curve.n,
        labelled=pairs.curve.n - len(pairs.unlabelled),
        needed=needed,
        complete=not digests,
        threshold=row.threshold,
        feasible=row.feasible,
        digests=tuple(digests[:limit]),
        words=f"{labels} until the next test of the threshold at alpha {alpha:g}."
        if digests
        else f"The threshold at alpha {alpha:g} is decided.",
    )
