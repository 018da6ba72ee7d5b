"""The screen that answers "is my judge good enough?", for `curve` and `calibrate`."""

from typing import TYPE_CHECKING

from rich.console import Console

from app.cli.console import console, print_thresholds, say, stdout
from app.core.assessment import (
    Assessment,
    advice_on_unanimous,
    alphas_in_words,
    note_on_looking,
    recommendation,
)

if TYPE_CHECKING:
    from scope_judge.records import CalibrationDetail, Threshold


def print_assessment(assessment: Assessment, *, output: Console = stdout) -> None:
    """Prints the figures, a table of alphas, the feasible alphas, and one recommendation."""
    say(_figures(assessment), output=output)
    if assessment.n:
        # A cascade's set does not say which alphas are feasible, and with how many labels.
        more = [_more(assessment, row) if assessment.feasible else "" for row in assessment.rows]
        title = f"calibrated on these {assessment.n} labels"
        print_thresholds(title, assessment.rows, more=more, output=output)
        sets = "; ".join(
            f"{name} {alphas_in_words(intervals)}"
            for name, intervals in assessment.feasible.items()
        )
        if sets:
            say(f"feasible alphas, in steps of 0.001: {sets}", output=output)
        say("", output=output)
    say((recommendation(assessment), "bold"), output=output)
    for note in (advice_on_unanimous(assessment.unanimous), note_on_looking(assessment)):
        if note is not None:
            say(note, output=output)


def print_detail(detail: "CalibrationDetail", *, output: Console = console) -> None:
    """Prints a calibration set: its figures, what each alpha gives, and its labels."""
    say(f"calibration {detail.name}, version {detail.version}", output=output)
    assessment = _assessment_of(detail)
    if detail.unlabelled:
        say(_figures(assessment), output=output)
        print_thresholds("thresholds so far", detail.thresholds, output=output)
        say(
            f"{detail.unlabelled} pairs have no label yet: label them on the desk; GET "
            f"/calibrations/{detail.name}/next lists those to label next",
            output=output,
        )
    else:
        print_assessment(assessment, output=output)
    for row in detail.thresholds:
        if row.cascade is not None and row.feasible:
            say(
                f"alpha {row.alpha:.2f}: the large judge is asked about "
                f"{row.cascade.escalated:.1%} of the pairs. {row.cascade.why}",
                output=output,
            )
    say(_labels_in_words(detail), output=output)
    if detail.counted < detail.labelled:
        say(
            f"pac counts one pair of each question: {detail.counted} of {detail.labelled}.",
            output=output,
        )


def _assessment_of(answer: "CalibrationDetail") -> Assessment:
    return Assessment(
        # A tie is not a label.
        n=answer.labelled,
        accuracy=answer.accuracy,
        auroc=answer.auroc,
        position_flips=answer.position_flips,
        unanimous=answer.unanimous,
        rows=answer.thresholds,
        infeasible=answer.infeasible,
        feasible={row.guarantee: row.intervals for row in answer.feasible_alphas},
    )


def _figures(assessment: Assessment) -> str:
    parts = [f"{assessment.n} labels without ties"]
    if assessment.accuracy is not None and assessment.accuracy_interval is not None:
        low, high = assessment.accuracy_interval
        parts.append(f"accuracy {assessment.accuracy:.3f} (95% interval {low:.3f} to {high:.3f})")
    if assessment.auroc is not None:
        parts.append(f"AUROC {assessment.auroc:.3f}")
    if assessment.position_flips is not None:
        parts.append(f"position flips {assessment.position_flips:.1%}")
    if assessment.unanimous is not None:
        parts.append(f"unanimous {assessment.unanimous:.1%}")
    return ", ".join(parts)


def _more(assessment: Assessment, row: "Threshold") -> str:
    if row.feasible:
        return ""
    more = assessment.more_examples(row)
    return "not known to help" if more is None else f"at least {more}"


def labeled_and_ties(detail: "CalibrationDetail") -> str:
    """Says how many pairs are labeled, and how many of these are ties."""
    labeled = detail.labelled + detail.pool_ties
    return f"{labeled} pairs labeled, of these {detail.pool_ties} ties"


def _labels_in_words(detail: "CalibrationDetail") -> str:
    """Says how many labels there are, and how many ties the alphas of the table accept."""
    told = f"{labeled_and_ties(detail)}, {detail.unlabelled} without a label."
    shares = [row.tie_share for row in detail.thresholds if row.tie_share is not None]
    if any(shares):
        bounds = [end for row in detail.thresholds for end in row.tie_interval or ()]
        told += (
            f" Of the pairs that an alpha of the table accepts, {min(shares):.1%} to "
            f"{max(shares):.1%} are ties (95% intervals from {min(bounds):.1%} to "
            f"{max(bounds):.1%}); no promise is about them."
        )
    return told
