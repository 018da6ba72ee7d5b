"""`scope-judge curve`: says whether a judge is good enough, from labeled pairs in files."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.assessment import print_assessment
from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url
from app.cli.console import CommandError, console
from app.cli.labeled_rows import print_label_report
from app.cli.running.judged_first import Judging, checked_before, judged_by_service, judged_here
from app.cli.running.options import (
    ColumnMap,
    Encoding,
    Inputs,
    OnContradictions,
    check_share,
    given_contradictions,
    given_format,
)
from app.core.assessment import Assessment
from app.core.comparison import STANDARD_ALPHAS, STANDARD_DELTA

# The help needs none of these: functions import them.
if TYPE_CHECKING:
    from app.evaluation.curve.labeled_scores import LabeledScores
    from app.evaluation.judgments.jsonl import Judged
    from app.files.checking import CheckedRows
    from app.files.labeled import FilePair

_PLOT_ENDINGS = (".png", ".svg")


def curve(
    files: Inputs,
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="Alpha in (0, 1); repeat for more.  [default: 0.05 to 0.25]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of pac, in (0, 1).")] = STANDARD_DELTA,
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            help="Also calibrate on random halves and test on the rest.",
        ),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Figure to write, .png or .svg.")] = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    contradictions: OnContradictions = "drop",
    judge: Annotated[
        str | None,
        typer.Option(help="Load this judge for pairs without judgments (see `evaluate`)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for new judgments (with --judge: folder).  "
            "[default: FILE-judged.jsonl or evaluation-JUDGE]"
        ),
    ] = None,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Is my judge good enough? Shows which alphas your labeled pairs make feasible.

    Rows have a label and a judgment (of `judge` or `evaluate`), p_fwd and p_rev, or score_a and
    score_b. Pairs without judgments are judged first.
    """
    alphas = tuple(alpha or STANDARD_ALPHAS)
    _check(alphas, delta, plot)
    from app.evaluation.curve.labeled_scores import labeled_scores_of
    from app.evaluation.curve.rows import assessment_of
    from app.evaluation.judgments.jsonl import read_judgments

    judging = Judging(
        form=given_format(columns, encoding),
        contradictions=given_contradictions(contradictions),
        judge=judge,
        url=url,
        patience_s=patience,
        out=out,
    )
    judged = read_judgments(files, judging.form, judging.contradictions)
    told = None
    if judged.signal is None:
        rows = checked_before(files, judging)
        told = rows.report.sentence
        judged = _judged(files, judging, rows)
    scores = labeled_scores_of(judged, ", ".join(map(str, files)))
    # A judgment that failed makes another report.
    if scores.report.sentence != told:
        print_label_report(scores.report)
    assessment = assessment_of(scores, alphas, delta=delta)
    print_assessment(assessment)
    if split:
        _print_splits(scores, alphas, delta)
    if plot is not None:
        _write_figure(scores, assessment, plot)


def _judged(files: list[Path], judging: Judging, rows: "CheckedRows[FilePair]") -> "Judged":
    if judging.judge is not None:
        return judged_here(judging, rows)
    return judged_by_service(files, judging, rows)


def _check(alphas: tuple[float, ...], delta: float, plot: Path | None) -> None:
    for level in alphas:
        check_share("alpha", level)
    check_share("delta", delta)
    if plot is None:
        return
    if plot.suffix.lower() not in _PLOT_ENDINGS:
        raise CommandError(f"--plot {plot}: the name must end in .png or .svg")
    if find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: pip install scope-judge[evaluation]")


def _print_splits(scores: "LabeledScores", alphas: tuple[float, ...], delta: float) -> None:
    # Imported late: these need libraries of the extra "evaluation".
    from app.cli.evaluation_results import print_splits
    from app.evaluation.protocol import Design, run_protocol
    from app.evaluation.selectors import Points, pac, scope

    if scores.n < 4:
        raise CommandError("--split needs at least 4 labeled pairs")
    rules = {"scope": scope, "pac": pac}
    points = Points.of(scores.uncertainty, scores.error)
    design = Design(alphas=alphas, delta=delta)
    with console.status("splitting"):
        rows = run_protocol(points, design, selectors=rules)
    print_splits(rows, scores.n)


def _write_figure(scores: "LabeledScores", assessment: Assessment, plot: Path) -> None:
    # Imported late, because the other commands work without matplotlib.
    from app.evaluation.curve.figure import write_curve_figure

    try:
        write_curve_figure(scores, assessment, plot)
    except OSError as exc:
        raise CommandError(f"{plot} cannot be written: {exc.strerror}") from None
