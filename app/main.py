"""The application for an ASGI server: `uvicorn --factory app.main:create`."""

import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from app import output
from app.api.application import create_application
from app.api.auth.keys import Keys, open_keys
from app.api.middleware.gate import GateLimits
from app.api.middleware.json_meter import most_parts
from app.service.services import Services
from app.settings import Settings, read_settings
from app.wiring.services import open_services
from app.wiring.startup import StartupObserver

logger = logging.getLogger("app")

_PROBED = frozenset({"/healthz", "/readyz", "/metrics"})


class LoggingObserver:
    """Says in the log what a start is doing."""

    def stage(self, text: str) -> None:
        """Logs the stage."""
        logger.info("%s", text)

    def warning(self, text: str) -> None:
        """Logs the warning."""
        logger.warning("%s", text)

    def calibrated(self, done: int, total: int) -> None:
        """Logs progress."""
        logger.info("%d of %d pairs judged", done, total)


def build(
    settings: Settings,
    open_services: Callable[[], AbstractAsyncContextManager[Services]],
    *,
    keys: Keys | None,
) -> FastAPI:
    """Builds the application as the settings have it, over services that are yet to be opened."""
    limits = GateLimits(
        max_body_bytes=settings.max_body_bytes,
        max_pending_bytes=settings.max_pending_bytes,
        timeout_s=settings.timeout_s,
        max_json_parts=most_parts(settings.max_batch),
    )

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        try:
            async with open_services() as services:
                services.telemetry.show_dropped_lines(output.dropped_lines)
                yield services
        finally:
            output.finish()

    return create_application(opened, limits=limits, keys=keys, metrics=settings.metrics)


@asynccontextmanager
async def serving(
    settings: Settings, observer: StartupObserver, *, on_engine_lost: Callable[[str], None]
) -> AsyncIterator[Services]:
    """Services as `open_services` opens them, for a process that does nothing else."""
    async with open_services(settings, observer, on_engine_lost=on_engine_lost) as services:
        # A full garbage collection looks at every object while all threads wait. The 100,000
        # objects of a start (without vLLM) live to the end, so they are not looked at again.
        gc.collect()
        gc.freeze()
        yield services


def log_as(level: str) -> None:
    """Sets how much is logged; of the access log, paths without what was asked behind them.

    Probes that were answered as they hope for are left out: a proxy asks twice a second.
    """
    logging.basicConfig(format="%(levelname)s:     %(message)s")
    logger.setLevel(level.upper())
    logging.getLogger("uvicorn.access").addFilter(_worth_logging)


def _worth_logging(record: logging.LogRecord) -> bool:
    # Uvicorn's arguments: client, method, path with query, version, status. A query is no part of
    # this interface, so it may be anything, a text too.
    if isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, version, status = record.args
        path = str(path).partition("?")[0]
        record.args = (client, method, path, version, status)
        return path not in _PROBED or status != 200
    return True


def _end_process(reason: str) -> None:
    """Lets the server finish what it can, and a supervisor start it again."""
    logger.critical("%s; the service ends, to be started again", reason)
    signal.raise_signal(signal.SIGTERM)


def create() -> FastAPI:
    """Builds the application from the environment; one worker, since each loads its own judge."""
    output.unblock()
    settings = read_settings()
    log_as(settings.log_level)
    observer = LoggingObserver()
    keys = open_keys(settings.api_keys_file, observer.warning)
    if keys is None:
        observer.warning(
            "no file of keys is set (SCOPE_API_KEYS_FILE): only this machine is served"
        )
    return build(
        settings,
        lambda: serving(settings, observer, on_engine_lost=_end_process),
        keys=keys,
    )
