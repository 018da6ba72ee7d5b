"""`scope-judge curve`: says whether a judge is good enough, from labeled pairs in files."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.assessment import print_assessment
from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError, say
from app.cli.running import options
from app.cli.running.rows import checked_pairs, print_label_report
from app.core.comparison import STANDARD_ALPHAS, STANDARD_DELTA
from app.files.reading import STDIN, InputFormat

_OTHERWISE = ", or load a judge with `scope-judge evaluate FILE --judge MODEL`"


def curve(
    files: options.Inputs,
    alpha: Annotated[
        list[float] | None,
        typer.Option(
            parser=options.share,
            help="Alpha in (0, 1); repeat for more.  [default: 0.05 to 0.25]",
        ),
    ] = None,
    delta: options.DeltaOfPac = STANDARD_DELTA,
    columns: options.ColumnMap = None,
    encoding: options.Encoding = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for new judgments.  [default: FILE-judged.jsonl]"),
    ] = None,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Is my judge good enough? Shows which alphas your labeled pairs make feasible.

    Rows have a label and a judgment (of `judge` or `evaluate`), p_fwd and p_rev, or score_a and
    score_b. Pairs without judgments are judged first.
    """
    alphas = tuple(alpha or STANDARD_ALPHAS)
    # The help needs none of these.
    from app.cli.running.judging import judge_files
    from app.evaluation.curve import assessment_of, labeled_scores_of
    from app.evaluation.judgments.jsonl import read_judgments

    form = options.given_format(columns, encoding)
    judged = read_judgments(files, form)
    told = None
    if judged.signal is None:
        if STDIN in files:
            raise CommandError("standard input has no judgments: judge a file, which is read twice")
        _, report = checked_pairs(files, form)
        told, out = report.sentence, out or _beside(files[0])
        say(
            f"These {report.rows} pairs are not judged yet: the service at {url} judges them "
            f"first, into {out}"
        )
        if out.exists():
            same = " with the same --map" if form.shape else ""
            raise CommandError(
                f"{out} already exists: `scope-judge curve {out}`{same} reads it; --out names "
                "another file"
            )
        judges = connected(url, patience_s=patience, otherwise=_OTHERWISE)
        # Without an alpha no calibration is needed.
        judge_files(files, {"alpha": None}, judges, form=form, out=out, may_fail=True)
        # The results are UTF-8 with the columns of the input.
        judged = read_judgments([out], InputFormat(shape=form.shape))
    scores = labeled_scores_of(judged, ", ".join(map(str, files)))
    # A judgment that failed makes another report.
    if scores.report.sentence != told:
        print_label_report(scores.report)
    print_assessment(assessment_of(scores, alphas, delta=delta))


def _beside(given: Path) -> Path:
    """The file of results beside the pairs: pairs-judged.jsonl for pairs.csv.gz."""
    name = given.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")
    stem = (name[0] or name[2]) if given.is_file() else "pairs"
    folder = given.parent if given.is_file() else Path()
    return folder / f"{stem}-judged.jsonl"
