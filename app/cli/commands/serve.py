"""`scope-judge serve`: runs the service and prints the progress of its start."""

from typing import Annotated

import typer


def serve(
    host: Annotated[str | None, typer.Option(help="Instead of SCOPE_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of SCOPE_PORT.")] = None,
) -> None:
    """Run the service; SCOPE_* variables set everything else (docs/reference/settings.md)."""
    # The help of the command must not load the service.
    from app.cli.service_run import run_service

    run_service(host=host, port=port)
