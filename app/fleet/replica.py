"""One judge of a fleet on Ray Serve, with the whole service in front of it.

A request that Serve's proxy gives to it, both orders of every comparison and the thresholds in
memory stay together; what replicas share is the calibration store.
"""

import asyncio
import logging
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.api.application import drain
from app.api.auth.keys import open_keys
from app.core.errors import EngineUnavailableError, ScopeJudgeError, StartupError
from app.main import LoggingObserver, log_as
from app.main import build as build_application
from app.service.services import Services
from app.settings import Settings, read_settings
from app.wiring.services import open_services

logger = logging.getLogger("app.fleet")

# What is under way when a judge dies is answered within 0.14 s (docs/design/engine.md).
_LAST_ANSWERS_S = 0.5
# Engine and store are freed after the last request.
_CLOSE_S = 15.0


class FleetArguments(BaseModel):
    """How many judges there are, as `args` of the application in Serve's YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(1, ge=1)
    # Requests, not comparisons: a batch is one.
    target_ongoing_requests: float = Field(32.0, gt=0)
    upscale_delay_s: float = Field(30.0, ge=0)
    # Loading a judge takes minutes.
    downscale_delay_s: float = Field(600.0, ge=0)
    health_check_period_s: float = Field(5.0, gt=0)
    on_gpu: bool = True
    cpus_per_replica: float = Field(1.0, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> "FleetArguments":
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas is more than max_replicas")
        return self


class JudgeReplica:
    """One judge of the fleet; Serve's wrapper around it runs the application as `app`."""

    app: FastAPI
    _told = False

    async def check_health(self) -> None:
        """Raises if this replica cannot judge, and another one in its place might.

        A store or servers that are gone are gone for another replica, too, which would have no
        thresholds in memory to go on with; and one that is slow or full under load would leave
        its load to the others.
        """
        lost = getattr(self.app.state, "engine_lost", None)
        if lost is not None:
            raise EngineUnavailableError(lost)
        try:
            await self.app.state.services.readiness.check()
        except ScopeJudgeError as exc:
            if self._is_dead(exc):
                raise
            if not self._told:
                logger.warning("the replica stays although it cannot judge: %s", exc.detail)
            self._told = True
        else:
            self._told = False

    def _is_dead(self, exc: ScopeJudgeError) -> bool:
        """Whether the engine refuses, and ends with this process."""
        refuses = isinstance(exc, EngineUnavailableError)
        late = isinstance(exc.__cause__, TimeoutError)
        return refuses and not late and self.app.state.engine_is_here


def application() -> FastAPI:
    """The service for one replica, from the environment of its process."""
    settings = fleet_settings()
    log_as(settings.log_level)
    observer = LoggingObserver()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        async with open_services(settings, observer, on_engine_lost=leave) as services:
            yield services

    def leave(reason: str) -> None:
        logger.critical("%s; this replica ends, and Serve starts another", reason)
        app.state.engine_lost = reason
        drain(app)
        # SIGTERM would end the process where it stands; and as long as it lives, a judge that
        # refuses at once looks idle, and Serve sends it more than its share.
        asyncio.get_running_loop().call_later(_LAST_ANSWERS_S, os._exit, 1)

    app = build_application(
        settings, opened, keys=open_keys(settings.api_keys_file, observer.warning)
    )
    app.state.engine_is_here = settings.engine != "openai"
    return app


def fleet_settings() -> Settings:
    """The environment's settings, if many replicas can run with them.

    Raises:
        StartupError: They cannot.
        ValueError: A setting is wrong.
    """
    settings = read_settings()
    if not settings.store_url.startswith(("redis://", "rediss://")):
        raise StartupError(
            "replicas on Ray share one calibration, and Serve may start any of them anywhere: "
            "SCOPE_STORE_URL has to be redis://host:port/db or rediss://"
        )
    if settings.api_keys_file is None:
        raise StartupError(
            "on Ray every request comes from Serve's proxy, and whether its sender is this machine "
            "cannot be told: make keys with `scope-judge keys add` and set SCOPE_API_KEYS_FILE"
        )
    return settings


def options(settings: Settings, arguments: FleetArguments) -> dict[str, Any]:
    """How Serve is to run the replicas."""
    gpus = settings.tensor_parallel if arguments.on_gpu else 0
    return {
        "name": "Judge",
        "autoscaling_config": {
            "min_replicas": arguments.min_replicas,
            "max_replicas": arguments.max_replicas,
            "target_ongoing_requests": arguments.target_ongoing_requests,
            "upscale_delay_s": arguments.upscale_delay_s,
            "downscale_delay_s": arguments.downscale_delay_s,
        },
        "ray_actor_options": {"num_cpus": arguments.cpus_per_replica, "num_gpus": gpus},
        # The service counts comparisons itself, and answers 429 where Serve would let wait.
        "max_ongoing_requests": settings.max_pending,
        "health_check_period_s": arguments.health_check_period_s,
        # The probe of judge and store has a timeout of its own, and is to tell the reason.
        "health_check_timeout_s": settings.probe_timeout_s + 5.0,
        # Serve takes a replica out of its routes before it waits for what is under way.
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": math.ceil(settings.drain_s + _CLOSE_S),
    }
