"""`scope-judge serve`: runs the service and prints the progress of its start."""

import json
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from app import output
from app.api.auth.keys import Keys
from app.api.server.draining import DrainingServer, bound
from app.cli.console import ConsoleObserver, console, failure, print_thresholds
from app.cli.reach import keys_of, reachable
from app.cli.stopping import end_now
from app.core.calibration import Calibration
from app.core.errors import ScopeJudgeError, StartupError
from app.main import build, log_as, serving
from app.service.calibration.cache import DEFAULT_CALIBRATION
from app.service.judging.judge import Judge
from app.service.services import Services
from app.settings import Settings, read_settings


def serve(
    host: Annotated[str | None, typer.Option(help="Instead of SCOPE_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of SCOPE_PORT.")] = None,
) -> None:
    """Run the service; SCOPE_* variables set everything else (docs/reference/settings.md)."""
    settings = _prepared({"host": host, "port": port})
    observer = ConsoleObserver()
    keys = keys_of(settings, observer)
    settings = reachable(settings, keys, observer)
    run = _Run(settings, observer, keys)
    try:
        with bound(settings.host, settings.port) as listener:
            run.until_stopped(listener)
    except StartupError as exc:
        raise failure(exc.detail) from None
    observer.finish()
    if run.refused is not None:
        raise failure(run.refused.detail)
    if run.lost is not None:
        raise failure(f"{run.lost}; the service has stopped: start it again")


class _Run:
    """One run of the service, from loading the judge to the last answer.

    Args:
        settings: All settings.
        observer: Prints the progress of the start.
        keys: Accepted keys; None accepts everybody on this machine.
    """

    def __init__(self, settings: Settings, observer: ConsoleObserver, keys: Keys | None) -> None:
        self._settings = settings
        self._observer = observer
        self._with_key = keys is not None
        self._services: Services | None = None
        # The reason why the service did not start, if it did not.
        self.refused: ScopeJudgeError | None = None
        application = build(settings, self._opened, keys=keys)
        self._server = DrainingServer(application, settings, self._on_listening, end_now)

    @property
    def lost(self) -> str | None:
        """The reason why the engine can never answer again; None while it can."""
        return self._server.lost

    def until_stopped(self, listener: socket.socket) -> None:
        """Serves until a signal arrives, the engine is lost, or the start fails."""
        # `serve` prints the reason why a start failed; uvicorn would add a traceback.
        logging.getLogger("uvicorn.error").addFilter(lambda record: self.refused is None)
        try:
            self._server.run(sockets=[listener])
        except SystemExit:
            # Uvicorn exits by itself if the start failed.
            if self.refused is None:
                raise

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Services]:
        try:
            opening = serving(self._settings, self._observer, on_engine_lost=self._server.end)
            async with opening as services:
                self._services = services
                yield services
        except ScopeJudgeError as exc:
            self.refused = exc
            raise

    def _on_listening(self, port: int) -> None:
        self._observer.finish()
        assert self._services is not None
        url = _url(self._settings.host, port)
        _print_started(self._services, self._observer, url, with_key=self._with_key)


def _prepared(given: dict[str, Any]) -> Settings:
    """Sets up output and log, and reads the settings with the command line's on top."""
    output.unblock()
    try:
        settings = read_settings(**{k: v for k, v in given.items() if v is not None})
    except ValueError as exc:
        raise failure(str(exc)) from None
    log_as(settings.log_level)
    return settings


def _url(host: str, port: int) -> str:
    """The URL at which this machine reaches the service."""
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
    if not _default_accepts(services):
        reason = (
            f"The calibration 'default' accepts nothing at alpha {services.defaults.alpha:g}"
            if any(_is_default(each, judge) for each in known)
            else "There is no calibration 'default' of this judge"
        )
        console.print(
            f"{reason}: POST labelled pairs to /calibrate, or name another set. "
            '"alpha": null below asks for a judgment that promises nothing.',
            highlight=False,
        )
    print(f"Try it:\n  {_example(services, url, with_key=with_key)}", file=sys.stderr, flush=True)


def _is_default(calibration: Calibration, judge: Judge) -> bool:
    return (calibration.name, calibration.fingerprint) == (DEFAULT_CALIBRATION, judge.fingerprint)


def _default_accepts(services: Services) -> bool:
    """Whether a request without alpha and calibration can get a verdict."""
    alpha, guarantee, delta = services.defaults
    return any(
        calibration.row(alpha, guarantee, delta).feasible
        for calibration in services.calibrations.known()
        if _is_default(calibration, services.judge)
    )


def _example(services: Services, url: str, *, with_key: bool) -> str:
    """A command that asks for a judgment and gets one."""
    body = {
        "question": "Sort these numbers from small to large: 7, 2, 9",
        "response_a": "2, 7, 9",
        "response_b": "7, 2, 9",
    }
    asked = json.dumps(body if _default_accepts(services) else {**body, "alpha": None})
    key = ' -H "Authorization: Bearer $SCOPE_API_KEY"' if with_key else ""
    return f"curl {url}/judge -H 'Content-Type: application/json'{key} -d '{asked}'"
