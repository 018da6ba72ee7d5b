"""The application for an ASGI server: `uvicorn --factory app.main:create`."""

import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app.api.application import create_application
from app.api.keys import open_keys
from app.judging.services import Services
from app.observability import logs
from app.settings import Settings, read_settings
from app.wiring.services import open_services
from app.wiring.startup import LoggingObserver, StartupObserver

logger = logging.getLogger("app")


@asynccontextmanager
async def serving(
    settings: Settings,
    observer: StartupObserver,
    *,
    on_lost: Callable[[str], None],
) -> AsyncIterator[Services]:
    """Opens the services in a process that only serves, and freezes the start's objects for gc."""
    async with open_services(settings, observer, on_lost=on_lost) as services:
        # A full garbage collection stops all threads while it visits every object. The 100,000
        # objects of a start (without vLLM) live until the end, so no collection visits them again.
        gc.collect()
        gc.freeze()
        yield services


def _end_process(reason: str) -> None:
    """Ends the process in order, so that its supervisor can start it again."""
    logger.critical("%s; the service stops, so that its supervisor can restart it", reason)
    signal.raise_signal(signal.SIGTERM)


def create() -> FastAPI:
    """Builds the application from the environment.

    Run it with one worker, because each worker loads its own judge.
    """
    settings = read_settings()
    logs.start_log(settings.log_level, settings.log_format)
    observer = LoggingObserver()
    keys = open_keys(settings.api_keys_file, observer.warning)
    if keys is None:
        observer.warning(
            "SCOPE_API_KEYS_FILE is not set: only requests from this machine are answered"
        )
    return create_application(
        settings,
        lambda: serving(settings, observer, on_lost=_end_process),
        keys=keys,
    )
