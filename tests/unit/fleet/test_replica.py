"""A replica on Ray Serve: settings, options, and when its health check fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.core.errors import (
    EngineUnavailableError,
    OverloadedError,
    StartupError,
    StoreUnavailableError,
)
from app.fleet.replica import JudgeReplica, fleet_settings, options
from app.judges.engines.scripted import ScriptedEngine
from app.ports import CallTimes
from app.settings import Settings, read_settings
from app.stores.memory import MemoryStore
from tests.serving import application_of

DEPLOY = Path(__file__).parents[3] / "deploy" / "ray"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("SCOPE_STORE_URL", "redis://store:6379/0")
    monkeypatch.setenv("SCOPE_API_KEYS_FILE", "/keys.json")
    return monkeypatch


@pytest.mark.parametrize("url", ["sqlite:///x.db", "memory://", "unix:///run/redis.sock"])
def test_replicas_without_a_common_store_are_refused(
    variables: pytest.MonkeyPatch, url: str
) -> None:
    assert fleet_settings().store_url == "redis://store:6379/0"
    variables.setenv("SCOPE_STORE_URL", url)
    with pytest.raises(StartupError, match="SCOPE_STORE_URL"):
        fleet_settings()


def test_a_fleet_without_keys_is_refused(variables: pytest.MonkeyPatch) -> None:
    variables.delenv("SCOPE_API_KEYS_FILE")
    with pytest.raises(StartupError, match="scope-judge keys add"):
        fleet_settings()


def test_a_replica_takes_the_gpus_that_share_its_judge() -> None:
    settings = Settings(tensor_parallel=4, max_pending=100, drain_s=7.5)
    found = options(settings)
    assert found["ray_actor_options"]["num_gpus"] == 4
    assert found["max_ongoing_requests"] == 100
    assert found["graceful_shutdown_timeout_s"] > 7.5
    assert found["health_check_timeout_s"] > 10


class Changed(ScriptedEngine):
    """Answers until `changed` is set, and then raises an error or never answers."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.changed = False
        self._error = error

    async def label_logits(self, prompts: Any, times: CallTimes | None = None) -> list[Any]:
        if self.changed and self._error is not None:
            raise self._error
        if self.changed:
            await asyncio.Event().wait()
        return await super().label_logits(prompts, times)


def refusing() -> Changed:
    return Changed(EngineUnavailableError("the judge is not running"))


class Gone(MemoryStore):
    """A store that does not answer."""

    async def ping(self) -> None:
        raise StoreUnavailableError("nobody is there")


def health_of(
    engine: ScriptedEngine,
    *,
    store: MemoryStore | None = None,
    lost: str | None = None,
    here: bool = True,
    times: int = 1,
) -> None:
    async def ask() -> None:
        replica = JudgeReplica()
        replica.app = application_of(engine, store or MemoryStore())
        replica.app.state.engine_is_here = here
        async with replica.app.router.lifespan_context(replica.app):
            if isinstance(engine, Changed):
                engine.changed = True
            if lost is not None:
                replica.app.state.engine_lost = lost
            for _ in range(times):
                await replica.check_health()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.judging.readiness.SILENT_S", 0.5)
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("engine", "given"),
    [
        (ScriptedEngine(), {}),
        # A new replica would not reach the servers or the store either.
        (refusing(), {"here": False}),
        (ScriptedEngine(), {"store": Gone()}),
    ],
)
def test_a_replica_is_kept(engine: ScriptedEngine, given: dict[str, Any]) -> None:
    health_of(engine, **given)


@pytest.mark.parametrize(
    ("engine", "lost", "reason"),
    [(refusing(), None, "is not running"), (ScriptedEngine(), "it has died", "has died")],
)
def test_a_replica_that_cannot_judge_any_more_is_replaced(
    engine: ScriptedEngine, lost: str | None, reason: str
) -> None:
    with pytest.raises(EngineUnavailableError, match=reason):
        health_of(engine, lost=lost)


@pytest.mark.parametrize("error", [None, OverloadedError("vLLM's queue is full")])
def test_a_replica_that_is_late_under_load_is_kept_and_logged_once(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    health_of(Changed(error), times=3)
    assert caplog.text.count("the replica stays") == 1


@pytest.mark.parametrize("name", ["serve.yaml", "serve-scripted.yaml"])
def test_a_shipped_serve_file_is_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (application,) = yaml.safe_load((DEPLOY / name).read_text())["applications"]
    assert application["import_path"] == "app.fleet.serving:build"
    assert "args" not in application
    assert [each["name"] for each in application["deployments"]] == [options(Settings())["name"]]
    for variable, value in application["runtime_env"]["env_vars"].items():
        monkeypatch.setenv(variable, value)
    read_settings()
    fleet_settings()
