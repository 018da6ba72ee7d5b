"""Judges labelled pairs for `scope-judge curve`, if no judge has judged them yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.console import CommandError, say
from app.cli.running.options import check_extra
from app.cli.running.rows import read_items
from app.files.reading import STDIN, files_of
from app.files.shapes import ComparisonShape

if TYPE_CHECKING:
    from app.evaluation.judgments.jsonl import Judged

# Far more than any file has: all pairs are judged.
_ALL_PAIRS = 10**9
_OTHERWISE = ", or load a judge here with --judge MODEL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """The judge of pairs that nobody has judged.

    Args:
        shape: How the rows hold their pairs; None to recognise it for each file.
        judge: Model to load here; None for the service.
        url: Address of the service.
        patience_s: How long a request is repeated while the service does not answer.
        out: File, or with a judge folder, for the judgments; None for the default.
    """

    shape: ComparisonShape | None
    judge: str | None
    url: str
    patience_s: float
    out: Path | None


def judged_by_service(inputs: Sequence[Path], judging: Judging) -> Path:
    """Judges files with a running service, as `scope-judge judge`; can be resumed.

    Returns:
        The file of results.

    Raises:
        CommandError: The pairs have no labels, or the run fails or is stopped.
    """
    from app.cli.running.judging import FileOptions, judge_files

    if STDIN in inputs:
        raise CommandError("standard input has no judgments: judge a file, which can be read twice")
    count = len(read_items(inputs, judging.shape, labelled=True))
    out = judging.out or _beside(inputs[0])
    if out.exists():
        raise CommandError(
            f"{out} already exists: `scope-judge curve {out}` reads it; --out names another file"
        )
    say(
        f"These {count} pairs are not judged yet: the service at {judging.url} judges them "
        f"first, into {out!s}"
    )
    options = FileOptions(shape=judging.shape, out=out, otherwise=_OTHERWISE, may_fail=True)
    # Without an alpha no calibration is needed.
    judge_files(inputs, {"alpha": None}, options, url=judging.url, patience_s=judging.patience_s)
    return out


def judged_here(inputs: Sequence[Path], judging: Judging) -> "Judged":
    """Judges files with a judge that is loaded here, as `scope-judge evaluate`; can be resumed.

    Raises:
        CommandError: The judge or the pairs cannot be used, or the run is stopped.
    """
    from app.cli.running.evaluation_run import EvaluationJob, choose_judge, judged_sources
    from app.evaluation.judgments.jsonl import Judged
    from app.wiring.engines import judge_name

    check_extra("evaluation")
    choice = choose_judge(judging.judge)
    name = judge_name(choice.settings)
    folder = judging.out or Path(f"evaluation-{name.rpartition('/')[2]}")
    say(f"These pairs are not judged yet: {name} is loaded and judges them first, into {folder!s}")
    files = [str(path) for path in files_of(inputs)]
    job = EvaluationJob(
        data=files, observations=("orders",), limit=_ALL_PAIRS, seed=0, shape=judging.shape
    )
    sources = judged_sources(job, choice, folder)
    pairs = [pair for source in sources.values() for pair in source.pairs]
    return Judged(
        pairs=tuple(pairs),
        places=tuple(f"{pair.dataset}, {pair.id}" for pair in pairs),
        ties=sum(source.ties for source in sources.values()),
        skipped=(),
        signal="gaps",
    )


def _beside(given: Path) -> Path:
    """The file of results beside the pairs: pairs-judged.jsonl for pairs.csv.gz."""
    name = given.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")
    stem = (name[0] or name[2]) if given.is_file() else "pairs"
    folder = given.parent if given.is_file() else Path()
    return folder / f"{stem}-judged.jsonl"
