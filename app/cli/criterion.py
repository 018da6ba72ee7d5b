"""The criterion of a verdict on the command line, for the commands that send it to a service."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.console import failure

NoAlpha = Annotated[
    bool, typer.Option(help="Do not abstain for uncertainty; there is then no guarantee.")
]
Guarantee = Annotated[str | None, typer.Option(help="marginal or pac.")]
Delta = Annotated[float | None, typer.Option(help="Probability that the pac guarantee fails.")]
CalibrationSet = Annotated[str | None, typer.Option(help="Name of the calibration set.")]
DeltaFor = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        help="Number of alphas that you choose from after a look: pac computes each at delta "
        "divided by it, so that all of them hold together.  [default: 1]",
    ),
]


def given_criterion(options: Mapping[str, Any], *, no_alpha: bool = False) -> dict[str, Any]:
    """The fields of a criterion that the command line sets; the others are the service's.

    Args:
        options: Field -> value of its option, None if it was not given.
        no_alpha: Whether every verdict is accepted.

    Raises:
        typer.Exit: There is an alpha besides `no_alpha`.
    """
    if no_alpha and options["alpha"] is not None:
        raise failure("give --alpha or --no-alpha, not both")
    given = {name: value for name, value in options.items() if value is not None}
    return {**given, "alpha": None} if no_alpha else given
