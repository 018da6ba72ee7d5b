"""Fixtures that run each contract test on every store."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from app.ports import Store
from tests.integration.stores.backends import store_at
from tests.redis_server import RedisCluster, RedisServer

Connect: TypeAlias = Callable[[], Awaitable[Store]]

ALL = ("memory", "sqlite", "redis", "redis+cluster")


@pytest.fixture(params=ALL)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(scheme: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of an empty store."""
    if scheme == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url
    if scheme == "redis+cluster":
        cluster: RedisCluster = request.getfixturevalue("redis_cluster")
        cluster.empty()
        return cluster.url
    if scheme in ("memory", "sqlite"):
        return f"{scheme}://{tmp_path / 'new' / 'calibrations.db'}"
    raise ValueError(f"no server is known for the scheme {scheme!r}")


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three nodes of a Redis Cluster."""
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def connect(scheme: str, address: str) -> AsyncIterator[Connect]:
    """A function that opens another client of the same store; a memory store has only one."""
    async with AsyncExitStack() as clients:
        memory = store_at(address) if scheme == "memory" else None

        async def client() -> Store:
            store = memory or store_at(address)
            await store.open()
            clients.push_async_callback(store.close)
            return store

        yield client


@pytest.fixture
async def store(connect: Connect) -> Store:
    return await connect()
