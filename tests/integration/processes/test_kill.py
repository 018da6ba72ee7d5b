"""kill -9 in the middle of POST /calibrate: each write is durable and atomic."""

from pathlib import Path

import pytest

from tests.integration.processes.kills import kill_during_calibrate
from tests.redis_server import RedisServer

KILLS = 4


@pytest.fixture(params=["sqlite", "redis"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/calibration.db"
    return redis_server.url


def test_a_kill_during_calibrate_leaves_the_old_version_or_the_new_one(
    store_url: str, tmp_path: Path
) -> None:
    kills = kill_during_calibrate(tmp_path, store_url, kills=KILLS)
    print(f"{KILLS} kills: {kills}")
    # If every kill came before the work or after the answer, the test would show nothing.
    assert kills.interrupted >= 1
    assert kills.committed >= 1
