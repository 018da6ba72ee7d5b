"""The services under fuzzing, one for each kind of store."""

from collections.abc import Iterator

import pytest

from tests.drills.fuzzing.scene import Scene, scene
from tests.redis_server import RedisServer


@pytest.fixture(scope="package")
def sqlite_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A service without keys on a SQLite file."""
    folder = tmp_path_factory.mktemp("fuzzing-sqlite")
    with scene(folder, f"sqlite:///{folder}/sets.db") as found:
        yield found


@pytest.fixture(scope="package")
def redis_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A service with keys on a Redis of its own: other tests leave sets in the common one."""
    folder = tmp_path_factory.mktemp("fuzzing-redis")
    server = RedisServer(folder)
    server.start()
    try:
        with scene(folder, server.url, with_keys=True) as found:
            yield found
    finally:
        server.stop()
