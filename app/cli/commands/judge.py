"""`scope-judge judge`: judges one pair or files with a running service, or files on Ray."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError
from app.cli.running import options
from app.cli.running.judging import judge_files
from app.core.errors import StartupError
from app.files.writing import json_line

# The help of a command needs its options only.
if TYPE_CHECKING:
    from app.fleet.bulk import RayJudges

_STDOUT = ("-", "/dev/stdout")


def judge(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help=options.INPUTS_HELP),
    ] = None,
    question: Annotated[str | None, typer.Option(help="Question of a single pair.")] = None,
    a: Annotated[str | None, typer.Option(help="Response A, with --question.")] = None,
    b: Annotated[str | None, typer.Option(help="Response B, with --question.")] = None,
    alpha: options.Alpha = None,
    no_alpha: options.NoAlpha = False,
    guarantee: options.Guarantee = None,
    delta: options.Delta = None,
    calibration: options.CalibrationSet = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file; its extension sets the format.  [default: JSONL on stdout]"
        ),
    ] = None,
    columns: options.ColumnMap = None,
    encoding: options.Encoding = None,
    only_verdicts: Annotated[
        bool, typer.Option("--only-verdicts", help="Write only the rows with a verdict.")
    ] = False,
    overwrite: options.Overwrite = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Load the judge of the SCOPE_* variables on a Ray cluster; needs no service.",
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --ray: cluster address.  [default: the local cluster, or a new one]"
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="With --ray: number of judges.  [default: as many as fit]"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="With --ray: comparisons that a judge gets at a time.")
    ] = 1000,
) -> None:
    """Judge one pair, or files of pairs.

    Output rows have the input's columns and a `judgment` or an `error`; any error makes the exit
    status 1. A row's own `calibration` overrides the option.
    An unfinished run is kept in OUT.partial.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = options.given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha)
    if ray and (not files or (question, a, b) != (None, None, None)):
        raise CommandError("--ray takes files or folders, and no --question, --a or --b")
    if not ray and (address is not None or replicas is not None):
        raise CommandError("--address and --replicas need --ray")
    if files:
        if (question, a, b) != (None, None, None):
            raise CommandError("give either files, or --question with --a and --b")
        judges = (
            _on_ray(address, criterion, replicas=replicas, batch_size=batch_size)
            if ray
            else connected(url, patience_s=patience)
        )
        judge_files(
            files,
            criterion,
            judges,
            form=options.given_format(columns, encoding),
            out=None if out is None or str(out) in _STDOUT else out,
            overwrite=overwrite,
            only_verdicts=only_verdicts,
        )
        return
    if question is None or a is None or b is None:
        raise CommandError("give a file (or -), or --question with --a and --b")
    if out is not None:
        raise CommandError("--out goes with files; the judgment of one pair is printed")
    with connected(url, patience_s=patience) as client:
        print(json_line(asdict(client.judge(question, a, b, **criterion))))


def _on_ray(
    address: str | None, criterion: Mapping[str, Any], *, replicas: int | None, batch_size: int
) -> "AbstractContextManager[RayJudges]":
    """The judge of the settings, loaded on a Ray cluster."""
    # Imported late: Ray takes seconds.
    from app.settings import read_settings

    try:
        from app.fleet.bulk import joined
    except ImportError:
        raise StartupError("Ray is not installed: install scope-judge[ray]") from None
    return joined(address, read_settings(), criterion, replicas=replicas, batch_size=batch_size)
