"""Judges labeled pairs for `scope-judge curve`, if no judge has judged them yet."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.console import CommandError, say
from app.cli.labeled_rows import checked_pairs
from app.cli.running.options import check_extra
from app.files.checking import CheckedRows, Contradictions
from app.files.labeled import FilePair
from app.files.reading import STDIN, InputFormat

if TYPE_CHECKING:
    from app.evaluation.judgments.jsonl import Judged

# Far more than any file has: all pairs are judged.
_ALL_PAIRS = 10**9
_OTHERWISE = ", or load a judge here with --judge MODEL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """The judge of pairs that nobody has judged.

    Args:
        form: How the rows are written.
        contradictions: The decision about pairs whose labels differ.
        judge: Judge to open here; None for the service.
        url: Address of the service.
        patience_s: How long a request is repeated while the service does not answer.
        out: File, or with a judge folder, for the judgments; None for the default.
    """

    form: InputFormat
    contradictions: Contradictions
    judge: str | None
    url: str
    patience_s: float
    out: Path | None


def checked_before(inputs: Sequence[Path], judging: Judging) -> CheckedRows[FilePair]:
    """The labeled pairs of files that nobody has judged, with their report printed.

    Raises:
        ScopeJudgeError: The pairs have no labels, or cannot be used.
        CommandError: The rows are standard input, which cannot be read twice.
    """
    if STDIN in inputs:
        raise CommandError("standard input has no judgments: judge a file, which can be read twice")
    return checked_pairs(inputs, judging.form, judging.contradictions)


def judged_by_service(
    inputs: Sequence[Path], judging: Judging, rows: CheckedRows[FilePair]
) -> "Judged":
    """Judges files with a running service, as `scope-judge judge`; can be resumed.

    Raises:
        CommandError: The run fails or is stopped.
    """
    from app.cli.running.judging import FileOptions, judge_files
    from app.evaluation.judgments.jsonl import read_judgments

    out = judging.out or _beside(inputs[0])
    if out.exists():
        same = " with the same --map" if judging.form.shape else ""
        raise CommandError(
            f"{out} already exists: `scope-judge curve {out}`{same} reads it; --out names another "
            "file"
        )
    say(
        f"These {rows.report.rows} pairs are not judged yet: the service at {judging.url} judges "
        f"them first, into {out!s}"
    )
    options = FileOptions(form=judging.form, out=out, otherwise=_OTHERWISE, may_fail=True)
    # Without an alpha no calibration is needed.
    judge_files(inputs, {"alpha": None}, options, url=judging.url, patience_s=judging.patience_s)
    # The results are UTF-8 with the columns of the input.
    form = InputFormat(shape=judging.form.shape)
    return read_judgments([out], form, judging.contradictions)


def judged_here(judging: Judging, rows: CheckedRows[FilePair]) -> "Judged":
    """Judges files with a judge of any kind, as `scope-judge evaluate`; can be resumed.

    Raises:
        CommandError: The judge or the pairs cannot be used, or the run is stopped.
    """
    from app.cli.running.evaluation_run import EvaluationJob, choose_judge, judged_sources
    from app.evaluation.benchmarks.catalogue import data_name
    from app.evaluation.benchmarks.pair_file import benchmark_of_file
    from app.evaluation.judgments.jsonl import Judged
    from app.wiring.engines import judge_name

    check_extra("evaluation")
    choice = choose_judge(judging.judge)
    name = judge_name(choice.settings)
    folder = judging.out or Path(f"evaluation-{name.rpartition('/')[2]}")
    say(f"These pairs are not judged yet: the judge {name} judges them first, into {folder!s}")
    by_file: dict[Path, list[FilePair]] = defaultdict(list)
    for row in rows.labelled:
        by_file[row.path].append(row)
    benchmarks = [
        benchmark_of_file(data_name(path), its_rows, rows.report)
        for path, its_rows in by_file.items()
    ]
    job = EvaluationJob(benchmarks=benchmarks, observations=("orders",), limit=_ALL_PAIRS, seed=0)
    sources = judged_sources(job, choice, folder)
    pairs = [pair for source in sources.values() for pair in source.pairs]
    return Judged(
        pairs=tuple(pairs),
        places=tuple(f"{pair.dataset}, {pair.id}" for pair in pairs),
        report=rows.report,
        judges=frozenset(pair.judge for pair in pairs),
        signal="gaps",
    )


def _beside(given: Path) -> Path:
    """The file of results beside the pairs: pairs-judged.jsonl for pairs.csv.gz."""
    name = given.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")
    stem = (name[0] or name[2]) if given.is_file() else "pairs"
    folder = given.parent if given.is_file() else Path()
    return folder / f"{stem}-judged.jsonl"
