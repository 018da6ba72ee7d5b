"""One run of the service: settings, start, and the reason why it ended."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import typer

from app import output
from app.api.auth.keys import Keys
from app.api.server.draining import DrainingServer, bound
from app.cli.console import ConsoleObserver, failure
from app.cli.reach import keys_of, reachable
from app.cli.service_ready import print_ready, url_of
from app.cli.stopping import end_now
from app.core.errors import ScopeJudgeError, StartupError
from app.main import LoggingObserver, build, log_as, serving
from app.service.services import Services
from app.settings import Settings, read_settings


def run_service(*, host: str | None, port: int | None) -> None:
    """Runs the service until a signal ends it.

    Args:
        host: Replaces SCOPE_HOST.
        port: Replaces SCOPE_PORT.

    Raises:
        typer.Exit: The service did not start, or has lost its engine.
    """
    settings = _prepared({"host": host, "port": port})
    # Lines for people would not be JSON.
    as_json = settings.log_format == "json"
    observer = LoggingObserver() if as_json else ConsoleObserver()
    failed = _logged_failure if as_json else failure
    keys = keys_of(settings, observer)
    settings = reachable(settings, keys, observer)
    run = _Run(settings, observer, keys)
    try:
        with bound(settings.host, settings.port) as listener:
            run.until_stopped(listener)
    except StartupError as exc:
        raise failed(exc.detail) from None
    finally:
        if isinstance(observer, ConsoleObserver):
            observer.finish()
    if run.refused is not None:
        raise failed(run.refused.detail)
    if run.lost is not None:
        raise failed(f"{run.lost}; the service has stopped: start it again")


def _logged_failure(message: str) -> typer.Exit:
    logging.getLogger("app").error("%s", message)
    return typer.Exit(1)


class _Run:
    """One run of the service, from loading the judge to the last answer.

    Args:
        settings: All settings.
        observer: Receives the progress of the start.
        keys: Accepted keys; None accepts everybody on this machine.
    """

    def __init__(
        self, settings: Settings, observer: ConsoleObserver | LoggingObserver, keys: Keys | None
    ) -> None:
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
        assert self._services is not None
        url = url_of(self._settings.host, port)
        if isinstance(self._observer, LoggingObserver):
            judge = self._services.judge
            self._observer.note(f"ready at {url}, judge {judge.name} ({judge.fingerprint[:12]})")
            return
        self._observer.finish()
        print_ready(self._services, self._observer, url, with_key=self._with_key)


def _prepared(given: dict[str, Any]) -> Settings:
    """Sets up output and log, and reads the settings with the command line's on top."""
    output.unblock()
    try:
        settings = read_settings(**{k: v for k, v in given.items() if v is not None})
    except ValueError as exc:
        raise failure(str(exc)) from None
    log_as(settings.log_level, settings.log_format)
    return settings
