"""Fixtures that tests of several packages share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, VLLM_START_S
from tests.real_judge import UnavailableJudgeError, real_judge
from tests.redis_server import RedisServer

# Slow examples and slow drawing of examples must not fail: a machine may be slow or busy.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The service runs on asyncio's event loop."""
    return "asyncio"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis server for the whole run; tests that stop or fill a server make their own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_url(redis_server: RedisServer) -> str:
    """The URL of the common server; a test flushes it or uses names of its own."""
    return redis_server.url


@pytest.fixture(scope="session")
def real_checkpoint() -> Path:
    """The folder of a small real language model; the first call downloads and converts it."""
    try:
        return real_judge()
    except UnavailableJudgeError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def demo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service as `make serve` starts it: real vLLM, the bundled judge, an empty SQLite."""
    folder: Path = tmp_path_factory.mktemp("demo")
    settings = {
        "SCOPE_STORE_URL": f"sqlite:///{folder}/calibration.db",
        # A batch of 1,000 takes minutes on a slow, busy machine.
        "SCOPE_TIMEOUT_S": f"{PATIENCE_S:g}",
    }
    with Server(folder, settings, start_timeout_s=VLLM_START_S) as server:
        yield server
