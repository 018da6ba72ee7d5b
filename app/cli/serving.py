"""`scope-judge serve`: runs the service and says what its start is doing."""

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from app import output
from app.cli.console import ConsoleObserver, console, failure, print_thresholds
from app.cli.reach import keys_of, reachable
from app.cli.server import DrainingServer, bound
from app.core.errors import ScopeJudgeError
from app.main import build, log_as, serving
from app.service.services import Services
from app.settings import Settings, read_settings


def serve(
    host: Annotated[str | None, typer.Option(help="Instead of SCOPE_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of SCOPE_PORT.")] = None,
) -> None:
    """Run the service; everything else is set by SCOPE_* variables (see the README)."""
    settings = _prepared({"host": host, "port": port})
    observer = ConsoleObserver()
    keys = keys_of(settings, observer)
    settings = reachable(settings, keys, observer)
    listener = bound(settings.host, settings.port)
    running: list[Services] = []
    refused: list[ScopeJudgeError] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        try:
            opening = serving(settings, observer, on_engine_lost=lambda why: server.end(why))
            async with opening as services:
                running.append(services)
                yield services
        except ScopeJudgeError as exc:
            refused.append(exc)
            raise

    def on_listening(at: int) -> None:
        observer.finish()
        _print_started(running[0], observer, _url(settings.host, at), with_key=keys is not None)

    application = build(settings, opened, keys=keys)
    server = DrainingServer(application, settings, on_listening)
    # What refused to start is told once and in words, below, not as a traceback.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not refused)
    try:
        with listener:
            server.run(sockets=[listener])
    except SystemExit:
        # Uvicorn exits by itself where the start was refused; that is still to be told.
        if not refused:
            raise
    observer.finish()
    if refused:
        raise failure(refused[0].detail)
    if server.lost:
        raise failure(f"{server.lost}; the service has ended and can be started again")


def _prepared(given: dict[str, Any]) -> Settings:
    """Sets up output and log; reads the settings, which the command line overrides."""
    output.unblock()
    try:
        settings = read_settings(**{k: v for k, v in given.items() if v is not None})
    except ValueError as exc:
        raise failure(str(exc)) from None
    log_as(settings.log_level)
    return settings


def _url(host: str, port: int) -> str:
    """Where this machine reaches the service."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def _print_started(
    services: Services, observer: ConsoleObserver, url: str, *, with_key: bool
) -> None:
    judge, limits = services.judge, services.limits
    console.print(
        f"\n[bold green]ready[/] after {observer.elapsed_s:.1f} s at [bold]{url}[/]   "
        f"judge [bold]{judge.name}[/] ({judge.fingerprint[:12]}), "
        f"reads {limits.max_prompt_tokens} tokens",
        highlight=False,
    )
    known = services.calibrations.known()
    for calibration in known:
        if calibration.fingerprint != judge.fingerprint:
            console.print(
                f"[yellow]warning:[/] calibration {calibration.name!r} was made with another judge "
                f"({calibration.judge}) and is refused: use another store or name, or DELETE it, "
                "and calibrate this judge."
            )
            continue
        rows = [{**row._asdict(), "feasible": row.feasible} for row in calibration.standard_rows]
        print_thresholds(calibration.name, calibration.version, calibration.n, rows)
    question = "Sort these numbers from small to large: 7, 2, 9"
    body = json.dumps({"question": question, "response_a": "2, 7, 9", "response_b": "7, 2, 9"})
    if not known:
        console.print(
            "There is no calibration 'default': POST labelled pairs to /calibrate, name another "
            'one, or judge with "alpha": null, which promises nothing.'
        )
    key = ' -H "Authorization: Bearer $SCOPE_API_KEY"' if with_key else ""
    print(
        f"Try it:\n  curl {url}/judge -H 'Content-Type: application/json'{key} -d '{body}'",
        file=sys.stderr,
        flush=True,
    )
