"""The criterion of a verdict on the command line, for the commands that send it to a service."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

DeltaFor = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        help="Number of alphas that you choose from after a look: pac computes each at delta "
        "divided by it, so that all of them hold together.  [default: 1]",
    ),
]


def given_criterion(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a criterion that the command line sets; the others are the service's."""
    return {name: value for name, value in options.items() if value is not None}
