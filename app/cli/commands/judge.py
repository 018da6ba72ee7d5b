"""`scope-judge judge`: judges files with a running service, or on Ray."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError
from app.cli.running import options
from app.cli.running.judging import judge_files
from app.core.errors import StartupError

# The help of a command needs its options only.
if TYPE_CHECKING:
    from app.fleet.bulk import RayJudges

_STDOUT = ("-", "/dev/stdout")


def judge(
    files: options.Inputs,
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
    """Judge files of pairs.

    Output rows have the input's columns and a `judgment` or an `error`; any error makes the exit
    status 1. A row's own `calibration` overrides the option.
    An unfinished run is kept in OUT.partial.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = options.given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha)
    if not ray and (address is not None or replicas is not None):
        raise CommandError("--address and --replicas need --ray")
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
