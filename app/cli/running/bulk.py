"""`scope-judge judge --ray`: judges files in bulk on a Ray cluster; a stopped run can resume."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.cli.console import CommandError, say
from app.cli.progress import progress_bar
from app.cli.stopping import resumable
from app.core.errors import StartupError
from app.fleet.job import Job
from app.fleet.output import Output, Receipt
from app.fleet.parts import Cut, Part, cut
from app.fleet.passes import judged_parts
from app.fleet.sources import sources_of
from app.settings import read_settings

_ROWS_PER_PART = 1000
# Folder, below that of the run, of input that is written as JSONL for the time of the run.
_CONVERTED = "input"


def judge_in_bulk(
    inputs: list[Path],
    given: dict[str, Any],
    out: Path | None,
    rows_per_part: int | None,
    *,
    shape: str | None,
    address: str | None,
    replicas: int | None,
) -> None:
    """Judges files on a Ray cluster; parts that an earlier run finished are not judged again.

    Args:
        inputs: Files, folders and patterns.
        given: Fields of the criterion that the command line sets.
        out: Folder of the results; None for INPUT-judged in the working directory.
        rows_per_part: Comparisons in one part; None for 1,000.
        shape: Name of a shape or map of columns; None to recognise it for each file.
        address: Address of the cluster; None joins this machine's, or starts one.
        replicas: Number of judges; None for as many as fit.

    Raises:
        CommandError: The run is stopped or fails, or a comparison got no judgment.
    """
    rows_per_part = rows_per_part or _ROWS_PER_PART
    output = Output((out or Path(f"{inputs[0].stem}-judged")).absolute())
    _check_apart(inputs, output.folder)
    try:
        job = Job.of(read_settings(), given, output.folder)
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    say(("Reading", "dim"), f" {', '.join(map(str, inputs))}")
    sources = sources_of(inputs, output.folder / _CONVERTED, shape)
    whole = cut(sources, rows_per_part=rows_per_part)
    output.begin(job.manifest(whole, rows_per_part=rows_per_part))
    undone = {i: part for i, part in enumerate(whole.parts) if output.receipt(i) is None}
    if undone:
        kept = f"finished parts are kept in {output.folder}; rerun the command to resume"
        with resumable(kept):
            _judge_parts(job, whole, undone, address=address, replicas=replicas)
    _finish(output, whole)


def _check_apart(inputs: list[Path], out: Path) -> None:
    """Refuses an output folder within an input: the next run would read its own results."""
    if Path("-") in inputs:
        raise StartupError("--ray takes files or folders: a run that resumes cannot reread stdin")
    for given in inputs:
        if out.resolve().is_relative_to(given.resolve()):
            raise StartupError(
                f"--out {out} is within the input {given}: give a folder outside of it"
            )


def _judge_parts(
    job: Job,
    whole: Cut,
    undone: Mapping[int, Part],
    *,
    address: str | None,
    replicas: int | None,
) -> None:
    try:
        from app.fleet.bulk import joined
    except ImportError:
        raise StartupError("Ray is not installed: install scope-judge[ray]") from None
    rows = sum(part.rows for part in whole.parts)
    left = sum(part.rows for part in undone.values())
    with joined(address, job.settings) as cluster:
        # Checked even if --replicas is given: no number helps if not even one judge fits.
        fitting = cluster.judges()
        judges = replicas or fitting
        job.check_store(machines=cluster.machines)
        say(
            f"{left} of {rows} comparisons in {len(undone)} of {len(whole.parts)} parts, "
            f"by {min(judges, len(undone))} judges on {cluster.machines} machines, "
            f"into {job.out!s}"
        )
        with progress_bar() as progress:
            task = progress.add_task("judging", total=rows, completed=rows - left)

            def judge(parts: Mapping[int, Part]) -> Any:
                # Machines may have left or joined the cluster since the last pass.
                return cluster.judge(job, parts, judges=replicas or cluster.judges())

            for outcome in judged_parts(undone, judge):
                progress.advance(task, outcome.results)
                if outcome.kind == "failed":
                    say(("not judged:", "yellow"), f" part {outcome.part}: {outcome.detail}")


def _finish(output: Output, whole: Cut) -> None:
    """Prints the totals of all parts, and writes the summary if every part is done."""
    total, missing = Receipt(), 0
    for number in range(len(whole.parts)):
        receipt = output.receipt(number)
        missing += receipt is None
        total += receipt or Receipt()
    counts = {name: total.outcomes.get(name, 0) for name in ("A", "B", "abstain", "error")}
    say(
        f"{total.results} results in {output.folder!s}/parts: A {counts['A']}, "
        f"B {counts['B']}, abstained {counts['abstain']}, errors {counts['error']}"
    )
    for name, judgments in sorted(total.calibrations.items()):
        say(f"  {judgments} by calibration {name}")
    if missing:
        raise CommandError(
            f"{missing} of {len(whole.parts)} parts are not done; rerun the command to resume"
        )
    output.write_summary(total)
    shutil.rmtree(output.folder / _CONVERTED, ignore_errors=True)
    if counts["error"]:
        raise CommandError(
            f"{counts['error']} comparisons got no judgment: the lines with `error` in "
            f"{output.folder}/parts say why"
        )
