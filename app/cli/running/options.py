"""Options that several commands share, and checks of their values."""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.cli.console import CommandError
from app.files.reading import InputFormat
from app.files.shapes import custom_shape


def share(given: Any) -> float:
    """Reads a share, such as an alpha, that is between 0 and 1."""
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0.0 < value < 1.0:
        raise typer.BadParameter(
            f"it must be between 0 and 1, both excluded (10% is 0.1), got {given}"
        )
    return value


def encoding(given: str) -> str:
    """Reads the name of an encoding of text that Python knows."""
    try:
        "".encode(given)
    except (LookupError, UnicodeError):
        raise typer.BadParameter(
            f"{given} is unknown; cp1252 is that of Excel in Western Europe"
        ) from None
    return given


Inputs = Annotated[
    list[Path],
    typer.Argument(
        help="Files, folders or patterns: JSONL, JSON, CSV, TSV, .xlsx or Parquet, also .gz or "
        ".zst; - for stdin."
    ),
]
ColumnMap = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="Names of columns and labels, such as "
        "question=prompt,response_a=left,response_b=right,label=better,A=1,B=2,tie=equal.",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        parser=encoding,
        help="Encoding of text files, such as cp1252 for CSV from Excel.  [default: utf-8]",
    ),
]
Overwrite = Annotated[
    bool, typer.Option(help="Replace --out; discard an unfinished run with other settings.")
]
Alpha = Annotated[
    float | None,
    typer.Option(
        parser=share,
        help="Largest share of wrong verdicts among accepted ones.  [default: the service's]",
    ),
]
NoAlpha = Annotated[
    bool,
    typer.Option("--no-alpha", help="Accept every verdict, without a guarantee."),
]
Guarantee = Annotated[
    Literal["pac", "marginal"] | None,
    typer.Option(
        help="pac: at most alpha of the verdicts are wrong, except with probability delta of "
        "unlucky labels. marginal: near alpha are wrong with a good judge and many labels, without "
        "a bound.  [default: the service's]"
    ),
]
Delta = Annotated[
    float | None, typer.Option(parser=share, help="Probability that the pac guarantee fails.")
]
DeltaOfPac = Annotated[float, typer.Option(parser=share, help="Delta of pac, in (0, 1).")]
CalibrationSet = Annotated[str | None, typer.Option(help="Name of the calibration set.")]
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="SCOPE_STORE_URL",
        help="Store URL of the service: sqlite:///path or redis://host:port/db.",
        show_default=False,
    ),
]


def given_criterion(options: Mapping[str, Any], *, no_alpha: bool = False) -> dict[str, Any]:
    """The fields of a criterion that the command line sets; the others are the service's."""
    if no_alpha and options["alpha"] is not None:
        raise CommandError("give --alpha or --no-alpha, not both")
    given = {name: value for name, value in options.items() if value is not None}
    return {**given, "alpha": None} if no_alpha else given


def given_format(columns: Sequence[str] | None, encoding: str | None) -> InputFormat:
    """How the options say that rows are written."""
    shape = custom_shape(",".join(columns)) if columns else None
    return InputFormat(shape=shape, encoding=encoding)


def check_url(url: str) -> None:
    """Refuses a missing URL."""
    if not url:
        raise CommandError(
            "no store: set SCOPE_STORE_URL, or give --store. If the service runs without "
            "SCOPE_STORE_URL, it prints the path of its file when it starts: use "
            "--store sqlite:///FILE"
        )


# Extra of this package -> a module of each library in it.
_EXTRAS = {"evaluation": ("matplotlib",), "ratings": ("jinja2",)}


def check_extra(extra: Literal["evaluation", "ratings"]) -> None:
    """Refuses a command whose libraries are not installed."""
    missing = [module for module in _EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise CommandError(
            f"{', '.join(missing)} cannot be imported: pip install scope-judge[{extra}]"
        )
