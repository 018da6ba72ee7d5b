"""Options that `judge` and `battles` share: how a run asks, writes, and uses Ray."""

from typing import Annotated

import typer

BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Comparisons in one request, default 100; with --ray in one part, 1000.",
    ),
]
Overwrite = Annotated[
    bool, typer.Option(help="Replace --out, and drop an unfinished run with other settings.")
]
OnRay = Annotated[
    bool,
    typer.Option("--ray", help="Load the judge on a Ray cluster instead of asking a service."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="With --ray: address of the cluster; default: the one here, or a new one."),
]
RayReplicas = Annotated[
    int | None,
    typer.Option(min=1, help="With --ray: number of judges; default: all that fit."),
]
