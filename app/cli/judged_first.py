"""Judges labelled pairs for `scope-judge curve`, if no judge has judged them yet."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.markup import escape

from app.cli.comparisons import read_items
from app.cli.console import console, failure
from app.core.errors import ScopeJudgeError, UnavailableError
from app.files.reading import STDIN, files_of
from app.files.shapes import Shape

if TYPE_CHECKING:
    from app.evaluation.judgments.jsonl import Judged

# Far more than any file has: all pairs are judged.
_ALL_PAIRS = 10**9
_OTHERWISE = ", or load a judge here with --judge MODEL"


class Judging(NamedTuple):
    """The judge of pairs that nobody has judged.

    Args:
        shape: How the rows hold their pairs; None to recognise it for each file.
        judge: Model to load here; None for the service.
        url: Address of the service.
        patience_s: How long a request is repeated while the service does not answer.
        out: File, or with a judge folder, for the judgments; None for the default.
    """

    shape: Shape | None
    judge: str | None
    url: str
    patience_s: float
    out: Path | None


def judged_by_service(inputs: Sequence[Path], judging: Judging) -> Path:
    """Judges files with a running service, as `scope-judge judge`; can be resumed.

    Returns:
        The file of results.

    Raises:
        typer.Exit: The pairs have no labels, or the run fails or is stopped.
    """
    from app.cli.file_run import FileOptions, judge_files

    if STDIN in inputs:
        raise failure("standard input has no judgments: judge a file, which can be read twice")
    try:
        count = len(read_items(inputs, judging.shape, labelled=True))
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    out = judging.out or _beside(inputs[0])
    if out.exists():
        raise failure(
            f"{out} is there already: `scope-judge curve {out}` reads it, and --out names another"
        )
    console.print(
        f"These {count} pairs are not judged yet: the service at {escape(judging.url)} judges them "
        f"first, into {escape(str(out))}",
        highlight=False,
        soft_wrap=True,
    )
    options = FileOptions(shape=judging.shape, out=out, otherwise=_OTHERWISE, may_fail=True)
    # Without an alpha no calibration is needed.
    judge_files(inputs, {"alpha": None}, options, url=judging.url, patience_s=judging.patience_s)
    return out


def judged_here(inputs: Sequence[Path], judging: Judging) -> "Judged":
    """Judges files with a judge that is loaded here, as `scope-judge evaluate`; can be resumed.

    Raises:
        typer.Exit: The judge or the pairs cannot be used, or the run is stopped.
    """
    from app.cli.evaluate import check_extra
    from app.cli.evaluation_run import EvaluationJob, choose_judge, judged_sources
    from app.evaluation.judgments.jsonl import Judged
    from app.wiring.engines import judge_name

    check_extra()
    choice = choose_judge(judging.judge)
    name = judge_name(choice.settings)
    folder = judging.out or Path(f"evaluation-{name.rpartition('/')[2]}")
    console.print(
        f"These pairs are not judged yet: {escape(name)} is loaded and judges them first, into "
        f"{escape(str(folder))}",
        highlight=False,
        soft_wrap=True,
    )
    try:
        files = [str(path) for path in files_of(inputs)]
        job = EvaluationJob(files, ("orders",), _ALL_PAIRS, 0, retry=False, shape=judging.shape)
        sources = judged_sources(job, choice, folder)
    except UnavailableError as exc:
        raise failure(f"{exc.detail}; judgments are kept: run the same command again") from None
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    except KeyboardInterrupt:
        console.print("stopped; judgments are kept: run the same command again to continue")
        raise typer.Exit(130) from None
    pairs = [pair for source in sources.values() for pair in source.pairs]
    return Judged(
        tuple(pairs),
        tuple(f"{pair.dataset}, {pair.id}" for pair in pairs),
        sum(source.ties for source in sources.values()),
        (),
        "gaps",
    )


def _beside(given: Path) -> Path:
    """The file of results beside the pairs: pairs-judged.jsonl for pairs.csv.gz."""
    name = given.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")
    stem = (name[0] or name[2]) if given.is_file() else "pairs"
    folder = given.parent if given.is_file() else Path()
    return folder / f"{stem}-judged.jsonl"
