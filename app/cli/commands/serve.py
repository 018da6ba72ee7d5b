"""`scope-judge serve`: runs the service and prints the progress of its start."""

from typing import Annotated

import typer


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; overrides SCOPE_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; overrides SCOPE_PORT.")
    ] = None,
) -> None:
    """Run the service. SCOPE_* variables configure it (docs/reference/settings.md)."""
    # The help of the command must not load the service.
    from app.cli.service_run import run_service

    run_service(host=host, port=port)
