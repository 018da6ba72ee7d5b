"""`scope-judge curve`: shows the coverage of each alpha on labelled judgments in a file."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from app.cli.assessment import print_assessment, print_table
from app.cli.console import console, failure
from app.core.calibration import STANDARD_ALPHAS, STANDARD_DELTA
from app.core.errors import InvalidRequestError
from app.evaluation.curve.labelled_scores import LabelledScores, read_labelled_scores
from app.evaluation.curve.rows import assessment_of

_PLOT_ENDINGS = (".png", ".svg")
_SHOWN_LINES = 5


def curve(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSONL or JSONL.gz with label, and p_fwd and p_rev, or score_a and score_b."
        ),
    ],
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="In (0, 1); may be given several times.  [default: 0.05 to 0.25]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of pac, in (0, 1).")] = STANDARD_DELTA,
    label_noise: Annotated[
        float, typer.Option(help="Probability in [0, 0.5) that a label is flipped.")
    ] = 0.0,
    split: Annotated[
        bool,
        typer.Option(
            "--split",
            help="Also calibrate on random halves and test on the other halves, as `evaluate`.",
        ),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Figure to write, .png or .svg.")] = None,
) -> None:
    """Show which alpha is feasible with labelled pairs that a judge has already judged.

    The table has the threshold of each alpha and guarantee, the share of the pairs that it accepts,
    and the share of errors among the accepted.
    """
    alphas = tuple(alpha or STANDARD_ALPHAS)
    _check(alphas, delta, label_noise, plot, split=split)
    try:
        scores = read_labelled_scores(file)
    except InvalidRequestError as exc:
        raise failure(exc.detail) from None
    _print_left_out(scores)
    found = assessment_of(scores, alphas, delta=delta, label_noise=label_noise)
    print_assessment(found)
    if split:
        _print_splits(scores, alphas, delta, label_noise)
    if plot is not None:
        _write_figure(scores, plot, delta, label_noise)


def _check(
    alphas: tuple[float, ...], delta: float, label_noise: float, plot: Path | None, *, split: bool
) -> None:
    for name, value in (*(("alpha", each) for each in alphas), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise failure(f"--{name} must be between 0 and 1, both excluded, got {value}")
    if not 0.0 <= label_noise < 0.5:
        raise failure(f"--label-noise must be at least 0 and below 0.5, got {label_noise}")
    if split and find_spec("sklearn") is None:
        raise failure("--split needs scikit-learn: pip install scope-judge[evaluation]")
    if plot is None:
        return
    if plot.suffix.lower() not in _PLOT_ENDINGS:
        raise failure(f"--plot {plot}: the name must end in .png or .svg")
    if find_spec("matplotlib") is None:
        raise failure("--plot needs matplotlib: pip install scope-judge[evaluation]")


def _print_left_out(scores: LabelledScores) -> None:
    if scores.ties:
        console.print(f"left out: {scores.ties} ties")
    reasons = dict.fromkeys(skipped.reason for skipped in scores.skipped)
    for reason in reasons:
        lines = [str(skipped.line) for skipped in scores.skipped if skipped.reason == reason]
        shown = ", ".join(lines[:_SHOWN_LINES]) + (", ..." if len(lines) > _SHOWN_LINES else "")
        console.print(f"[yellow]left out:[/] {len(lines)} without {reason} (line {shown})")


def _print_splits(
    scores: LabelledScores, alphas: tuple[float, ...], delta: float, label_noise: float
) -> None:
    # Imported late: these need libraries of the extra "evaluation".
    from app.cli.evaluation_results import splits_table
    from app.evaluation.protocol import Design, run_protocol
    from app.evaluation.selectors import Points, pac, scope

    if scores.n < 4:
        raise failure("--split needs 4 labelled pairs at least")
    rules = {
        "scope": partial(scope, label_noise=label_noise),
        "pac": partial(pac, label_noise=label_noise),
    }
    points = Points.of(scores.uncertainty, scores.error)
    design = Design(alphas=alphas, delta=delta)
    with console.status("splitting"):
        rows = run_protocol(points, design, selectors=rules)
    print_table(splits_table(rows, scores.n))


def _write_figure(scores: LabelledScores, plot: Path, delta: float, label_noise: float) -> None:
    # Imported late, because the other commands work without matplotlib.
    from app.evaluation.curve.figure import write_curve_figure

    try:
        write_curve_figure(scores, plot, delta=delta, label_noise=label_noise)
    except OSError as exc:
        raise failure(f"{plot} cannot be written: {exc.strerror}") from None
