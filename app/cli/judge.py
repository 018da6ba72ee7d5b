"""`scope-judge judge`: judges one pair or a file with a running service, or files in bulk."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.bulk import judge_in_bulk
from app.cli.console import failure, progress_bar
from app.cli.jsonl import batches, json_line, read_jsonl
from app.cli.result_file import result_file, would_overwrite
from app.cli.service_client import DEFAULT_URL, Url, connected
from app.wire.answers import ItemErrorOut, JudgmentOut

_JUDGE_FIELDS = (
    "id",
    "question",
    "response_a",
    "response_b",
    "alpha",
    "guarantee",
    "delta",
    "calibration",
)
# A file of results may be judged again: the fields of an earlier result are not copied.
_NOT_COPIED = {*_JUDGE_FIELDS, *JudgmentOut.model_fields, *ItemErrorOut.model_fields}
_COMPARISONS_PER_REQUEST = 100


def judge(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="JSONL with question, response_a, response_b; - is stdin. With --ray: any number "
            "of JSONL or Parquet files, or folders of them.",
        ),
    ] = None,
    question: Annotated[str | None, typer.Option(help="Question of a single pair.")] = None,
    a: Annotated[str | None, typer.Option(help="Response A, with --question.")] = None,
    b: Annotated[str | None, typer.Option(help="Response B, with --question.")] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Largest share of wrong verdicts, instead of the service's default."),
    ] = None,
    no_alpha: Annotated[
        bool,
        typer.Option(help="Do not abstain for uncertainty; there is then no guarantee."),
    ] = False,
    guarantee: Annotated[str | None, typer.Option(help="marginal or pac.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Probability that the pac guarantee fails.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Name of the calibration set.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="JSONL file for the results, replaced once every pair is judged; default: stdout. "
            "With --ray: a folder."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Comparisons in one request, default 100; with --ray in one part, 1000.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Load the judge on a Ray cluster instead of asking a service."),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --ray: address of the cluster; default: the one here, or a new one."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="With --ray: number of judges; default: as many as fit."),
    ] = None,
) -> None:
    """Judge one pair or a JSONL file with a running service, or with --ray files in bulk.

    Each output line has the judgment, or an `error`, and the other fields of its input line. The
    exit status is 1 if any line has an error. The fields id, alpha, guarantee, delta and
    calibration of a line override the options. If a line is not a JSON object, the command stops
    before it judges anything.

    With --ray no service is needed: SCOPE_* variables select the judge. Finished parts are kept: if
    the command is stopped, run it again to judge the rest.
    """
    if no_alpha and alpha is not None:
        raise failure("give --alpha or --no-alpha, not both")
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta, "calibration": calibration}
    criterion: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if no_alpha:
        criterion["alpha"] = None
    if ray:
        if not files or (question, a, b) != (None, None, None) or url != DEFAULT_URL:
            raise failure("--ray takes files or folders, and no --question, --a, --b or --url")
        judge_in_bulk(files, criterion, out, batch_size, address=address, replicas=replicas)
        return
    if address is not None or replicas is not None:
        raise failure("--address and --replicas need --ray")
    lines = _given_lines(files or [], out, question, a, b)
    _judge_by_service(lines, criterion, out, batch_size or _COMPARISONS_PER_REQUEST, url=url)


def _given_lines(
    files: list[Path], out: Path | None, question: str | None, a: str | None, b: str | None
) -> list[dict[str, Any]]:
    if len(files) + (question is not None) != 1:
        raise failure("give either a JSONL file (or -), or --question with --a and --b")
    if files:
        if out is not None and would_overwrite(files[0], out):
            raise failure(f"--out {out} would overwrite the file that is judged; name another one")
        return read_jsonl(files[0])
    if a is None or b is None:
        raise failure("--question needs --a and --b")
    return [{"question": question, "response_a": a, "response_b": b}]


def _judge_by_service(
    lines: list[dict[str, Any]],
    criterion: dict[str, Any],
    out: Path | None,
    batch_size: int,
    *,
    url: str,
) -> None:
    failed = 0
    with (
        connected(url) as service,
        nullcontext(sys.stdout) if out is None else result_file(out) as output,
        progress_bar() as progress,
    ):
        task = progress.add_task("judging", total=len(lines))
        for some in batches(lines, min(batch_size, service.max_batch)):
            items = [{k: line[k] for k in _JUDGE_FIELDS if k in line} for line in some]
            answer = service.post("/judge/batch", {**criterion, "comparisons": items})
            for line, result in zip(some, answer["results"], strict=True):
                extras = {k: v for k, v in line.items() if k not in _NOT_COPIED}
                failed += "error" in result
                print(json_line({**extras, **result}), file=output)
            # If the process is killed, the file still has every result received so far.
            output.flush()
            progress.advance(task, len(some))
    if failed:
        raise failure(f"{failed} of {len(lines)} comparisons got no judgment; see their `error`")
