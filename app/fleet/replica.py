"""One replica on Ray Serve: the complete service with its own judge.

A request stays in the replica that Serve's proxy sends it to, with both orders of every comparison
and the thresholds in memory. Replicas share only the calibration store.
"""

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from app.api.application import create_application, drain
from app.api.keys import open_keys
from app.core.errors import EngineUnavailableError, ScopeJudgeError, StartupError
from app.judging.readiness import SILENT_S
from app.judging.services import Services
from app.observability.logs import start_log
from app.settings import Settings, read_settings
from app.wiring.engines import restarts_judge
from app.wiring.services import open_services
from app.wiring.startup import LoggingObserver
from app.wiring.stores import is_shared

logger = logging.getLogger("app.fleet")

# Requests in flight when a judge dies are answered within 0.14 s (docs/design/engine.md).
_LAST_ANSWERS_S = 0.5
# Time to free engine and store after the last request.
_CLOSE_S = 15.0


class JudgeReplica:
    """One judge of the fleet; Serve's wrapper sets the running application as `app`."""

    app: FastAPI
    _has_warned = False

    async def check_health(self) -> None:
        """Raises if this replica cannot judge and a new replica might.

        A new replica would not reach a lost store or lost servers either, and would have no
        thresholds in memory. A replica that is slow or full under load is kept, too: its load would
        move to the others.

        Raises:
            ScopeJudgeError: The engine of this process is dead.
        """
        lost = getattr(self.app.state, "engine_lost", None)
        if lost is not None:
            raise EngineUnavailableError(lost)
        try:
            await self.app.state.services.readiness.check()
        except ScopeJudgeError as exc:
            # The engine refuses at once, and is a part of this process.
            late = isinstance(exc.__cause__, TimeoutError)
            refuses = isinstance(exc, EngineUnavailableError) and not late
            if refuses and self.app.state.engine_is_here:
                raise
            if not self._has_warned:
                logger.warning("the replica stays although it cannot judge: %s", exc.detail)
            self._has_warned = True
        else:
            self._has_warned = False


def application() -> FastAPI:
    """Builds the service of one replica from the environment of its process."""
    settings = fleet_settings()
    start_log(settings.log_level, settings.log_format)
    observer = LoggingObserver()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        async with open_services(settings, observer, on_lost=leave) as services:
            yield services

    def leave(reason: str) -> None:
        logger.critical("%s; this replica exits, and Serve starts another", reason)
        app.state.engine_lost = reason
        drain(app)
        # Not SIGTERM, which would stop the process before it has answered. Exit soon: a replica
        # that refuses every request at once looks idle, and Serve sends it most of the load.
        asyncio.get_running_loop().call_later(_LAST_ANSWERS_S, os._exit, 1)

    app = create_application(
        settings, opened, keys=open_keys(settings.api_keys_file, observer.warning)
    )
    app.state.engine_is_here = restarts_judge(settings)
    return app


def fleet_settings() -> Settings:
    """Reads the settings from the environment and checks that several replicas can share them.

    Raises:
        StartupError: The store is local, or there is no key file.
        ValueError: A setting is wrong.
    """
    settings = read_settings()
    if not is_shared(settings.store_url):
        raise StartupError(
            "replicas on Ray share one calibration store, and Serve may start them on any machine: "
            "set SCOPE_STORE_URL to redis://host:port/db or rediss://host:port/db"
        )
    if settings.api_keys_file is None:
        raise StartupError(
            "on Ray every request comes from Serve's proxy, so a replica cannot see which machine "
            "sent it: make keys with `scope-judge keys add` and set SCOPE_API_KEYS_FILE"
        )
    return settings


def options(settings: Settings) -> dict[str, Any]:
    """Options of the Serve deployment; those in Serve's YAML override them."""
    return {
        "name": "Judge",
        # A batch is one request. Loading a judge takes minutes, so it is kept for ten.
        "autoscaling_config": {"target_ongoing_requests": 32, "downscale_delay_s": 600.0},
        "ray_actor_options": {"num_cpus": 1, "num_gpus": settings.tensor_parallel},
        # As large as the service's own limit, which answers 429: Serve would queue silently.
        "max_ongoing_requests": settings.max_pending,
        "health_check_period_s": 5.0,
        # Longer than the probe's own timeout, so that the probe reports the reason.
        "health_check_timeout_s": SILENT_S + 5.0,
        # Serve stops routing to a replica before it waits for the requests in flight.
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": math.ceil(settings.drain_s + _CLOSE_S),
    }
