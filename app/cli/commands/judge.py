"""`scope-judge judge`: judges one pair or files with a running service, or files on Ray."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.console import CommandError
from app.cli.running.judging import FileOptions, judge_files
from app.cli.running.options import (
    INPUTS_HELP,
    Alpha,
    BatchSize,
    CalibrationSet,
    ColumnMap,
    Delta,
    DeltaFor,
    Encoding,
    Excel,
    Flat,
    Guarantee,
    NoAlpha,
    OnRay,
    Overwrite,
    RayAddress,
    RayReplicas,
    ShapeName,
    given_criterion,
    given_format,
    given_shape,
)
from app.cli.running.rows import check_excel
from app.cli.running.run import ROWS_PER_REQUEST
from app.cli.service_client import DEFAULT_URL, PATIENCE_S, Patience, Url, connected, is_given
from app.files.writing import json_line

_STDOUT = ("-", "/dev/stdout")


def judge(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help=INPUTS_HELP),
    ] = None,
    question: Annotated[str | None, typer.Option(help="Question of a single pair.")] = None,
    a: Annotated[str | None, typer.Option(help="Response A, with --question.")] = None,
    b: Annotated[str | None, typer.Option(help="Response B, with --question.")] = None,
    alpha: Alpha = None,
    no_alpha: NoAlpha = False,
    guarantee: Guarantee = None,
    delta: Delta = None,
    delta_for: DeltaFor = None,
    calibration: CalibrationSet = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file (with --ray: folder); its extension sets the format.  "
            "[default: JSONL on stdout]"
        ),
    ] = None,
    batch_size: BatchSize = None,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    flat: Flat = None,
    keep_texts: Annotated[
        bool, typer.Option(help="Write the question and the responses, too.")
    ] = True,
    excel: Excel = False,
    overwrite: Overwrite = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
    ray: OnRay = False,
    address: RayAddress = None,
    replicas: RayReplicas = None,
) -> None:
    """Judge one pair, or files of pairs.

    Output rows have the input's columns and a `judgment` or an `error`; any error makes the exit
    status 1. A row's own alpha, guarantee, delta, delta_for or calibration overrides the options.
    An unfinished run is kept in OUT.partial.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta, "delta_for": delta_for}
    criterion = given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha)
    if ray:
        if not files or (question, a, b) != (None, None, None) or is_given(url):
            raise CommandError("--ray takes files or folders, and no --question, --a, --b or --url")
        if flat is not None or excel or overwrite or not keep_texts:
            raise CommandError("--ray has no --flat, --excel, --no-keep-texts or --overwrite")
        if encoding is not None:
            raise CommandError(
                "--ray reads UTF-8 only: convert the files first, for example with `iconv -f "
                f"{encoding} -t utf-8 FILE > CONVERTED`, or judge without --ray"
            )
        given_shape(shape, columns)
        # Imported late: the other ways to judge need neither settings nor fleet.
        from app.cli.running.bulk import judge_in_bulk

        judge_in_bulk(
            inputs=files,
            given=criterion,
            out=out,
            rows_per_part=batch_size,
            shape=shape or columns,
            address=address,
            replicas=replicas,
        )
        return
    if address is not None or replicas is not None:
        raise CommandError("--address and --replicas need --ray")
    if files:
        if (question, a, b) != (None, None, None):
            raise CommandError("give either files, or --question with --a and --b")
        check_excel(out, excel=excel)
        options = FileOptions(
            form=given_format(shape, columns, encoding),
            out=None if out is None or str(out) in _STDOUT else out,
            overwrite=overwrite,
            flat=flat,
            excel=excel,
            keep_texts=keep_texts,
            batch_size=batch_size or ROWS_PER_REQUEST,
        )
        judge_files(files, criterion, options, url=url, patience_s=patience)
        return
    if question is None or a is None or b is None:
        raise CommandError("give a file (or -), or --question with --a and --b")
    check_excel(out, excel=excel)
    if out is not None:
        raise CommandError("--out goes with files; the judgment of one pair is printed")
    pair = {"question": question, "response_a": a, "response_b": b}
    _judge_pair(pair, criterion, url, patience)


def _judge_pair(
    pair: Mapping[str, str], criterion: Mapping[str, Any], url: str, patience: float
) -> None:
    with connected(url, patience_s=patience) as service:
        (result,) = service.judge([pair], criterion, ())
    print(json_line(result))
    if "error" in result:
        raise CommandError(result["error"]["detail"])
